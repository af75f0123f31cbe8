"""Compile all kernels of a computation side by side before its first launch.

Triton compiles a kernel where it is first launched, one after the other: most of the
start of a machine's first training. `planned` runs a computation without launching a
kernel and notes which ones it would launch; `compile_planned` compiles them, each in a
process of its own. Threads would wait for each other, since Triton's compiler holds the
interpreter's lock. The processes are forks that only compile and write to Triton's
cache on disk: they do not touch the GPU, which a fork may not, and end at once.
Whatever goes wrong in one of them, its kernel is compiled where it is launched, as
without all this. What they compiled is then loaded here, one kernel after the other.
"""

import gc
import hashlib
import logging
import os
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import (
    AbstractContextManager,
    contextmanager,
    nullcontext,
    suppress,
)
from pathlib import Path
from threading import Lock, get_ident
from typing import Any

import torch
from torch import Tensor

from textcapsules.model.kernels.gpu import call
from textcapsules.model.kernels.gpu.maths import triton

__all__ = ["compile_planned", "planned"]

MOST_SECONDS = 60.0  # for one process to compile its kernel

planning = Lock()
loading = Lock()

compiling = logging.getLogger("textcapsules.compiling")  # as the CPU's kernels tell it


@contextmanager
def planned() -> Iterator[list[call.Launch]]:
    """Launch no kernel in the block, and yield the list of those it asks for.

    Other threads launch theirs. On a GPU a backward pass has a thread of its own, but
    not in the block: it is a part of what is noted.
    """
    launches: list[call.Launch] = []
    with planning, torch.autograd.set_multithreading_enabled(False):
        call.asked = call.Asked(launches, get_ident())
        try:
            yield launches
        finally:
            call.asked = None


def compile_planned(launches: list[call.Launch], processes: int | None = None) -> int:
    """Compile the kernels that are not compiled yet; return how many there were."""
    from triton.runtime._async_compile import AsyncCompileMode

    crew = Forks(processes or usable_cores())
    device = device_of(launches)
    # A kernel that cannot be compiled fails again, and says so, where it is launched.
    with current(device), AsyncCompileMode(crew, ignore_errors=True) as mode:
        try:
            # The longest take the longest to compile: they begin first.
            for launch in sorted(launches, key=lambda each: -len(each.kernel.src)):
                kernel, arguments, constants = launch
                kernel.warmup(*arguments, grid=(1,), **constants)
            crew.finish(list(mode.future_kernels))
        finally:
            crew.cancel()
    kernels = [future.result(True) for future in mode.future_kernels.values()]
    load([kernel for kernel in kernels if kernel is not None], device)
    return len(kernels)


def load(kernels: list[Any], device: torch.device | None) -> None:
    """Load kernels, and the C code that launches each, one after the other.

    All launchers are Python modules of the same name, and kernels with the same types
    of arguments share one. Python loads a shared one a second time into the module
    that was loaded last, whichever that is. If that is another thread's, which has yet
    to take its launcher out of it, the thread's kernel gets the shared one.
    """
    with loading, current(device):
        for kernel in kernels:
            _ = kernel.run  # compiles the launcher, if no fork could


def device_of(launches: list[call.Launch]) -> torch.device | None:
    """Return the GPU of the tensors; None where there is none."""
    for launch in launches:
        for each in launch.arguments:
            if isinstance(each, Tensor) and each.is_cuda:
                return each.device
    return None


def current(device: torch.device | None) -> AbstractContextManager[Any]:
    """Return a context in which a thread uses a GPU."""
    return nullcontext() if device is None else torch.cuda.device(device)


def usable_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def is_on_disk(key: str) -> bool:
    """Tell whether Triton's cache has the kernel of a key, as far as can be known."""
    try:
        from triton.runtime.cache import get_cache_manager

        name = hashlib.sha256(key.encode("utf-8")).hexdigest()
        manager: Any = get_cache_manager(name)
        return any(Path(manager.cache_dir).glob("__grp__*.json"))
    except Exception:  # another Triton, or another cache: then it is compiled
        return False


class Forks(Executor):
    """Does tasks in forks first, for what they leave on disk, and then here."""

    def __init__(self, processes: int) -> None:
        self.processes = processes
        self.tasks: list[tuple[Callable[[], Any], Future]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future:
        """Keep a task for `finish`."""
        future: Future = Future()
        self.tasks.append((lambda: fn(*args, **kwargs), future))
        return future

    def finish(self, keys: list[str]) -> None:
        """Do all tasks; their second time finds what the first has left."""
        pairs = zip(keys, self.tasks, strict=True)
        new = [task for key, (task, _) in pairs if not is_on_disk(key)]
        if new:
            compiling.info("%d kernels", len(new))
        if self.processes > 1 and len(new) > 1 and hasattr(os, "fork"):
            fork_all(new, self.processes)
        for task, future in self.tasks:
            try:
                future.set_result(task())
            except Exception as error:
                future.set_exception(error)

    def cancel(self) -> None:
        """Leave no task waiting."""
        for _, future in self.tasks:
            future.cancel()


def fork_all(tasks: list[Callable[[], Any]], processes: int) -> None:
    """Do every task in a fork, `processes` at a time; wait until all have ended."""
    waiting = list(reversed(tasks))
    running: dict[int, float] = {}
    try:
        while waiting or running:
            while waiting and len(running) < processes:
                running[fork(waiting.pop())] = time.monotonic()
            for process, started in list(running.items()):
                if time.monotonic() - started > MOST_SECONDS:
                    os.kill(process, signal.SIGKILL)
                if has_ended(process):
                    del running[process]
            time.sleep(0.005)
    except OSError:  # no more processes
        return
    finally:  # none is left behind, not even after Ctrl-C
        for process in running:
            with suppress(OSError):
                os.kill(process, signal.SIGKILL)
                os.waitpid(process, 0)


def has_ended(process: int) -> bool:
    """Tell whether a fork has ended, and let the system forget it."""
    try:
        return os.waitpid(process, os.WNOHANG)[0] != 0
    except ChildProcessError:  # the program ignores its children's end
        return True


def fork(task: Callable[[], Any]) -> int:
    """Start a process that does a task and ends at once; return its number."""
    parent = os.getpid()
    try:
        with warnings.catch_warnings():  # other threads are not needed in the fork
            warnings.simplefilter("ignore", DeprecationWarning)
            process = os.fork()
        if process:
            return process
        gc.disable()  # what is collected may belong to the GPU
        # Also if the parent is killed, and cannot end this process.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, MOST_SECONDS)
        compile_kernel(task)
    finally:
        if os.getpid() != parent:  # not even an interrupt lets the fork go on
            os._exit(0)
    return process


def compile_kernel(task: Callable[[], Any]) -> None:
    """Compile a kernel, and the C code that launches it, without loading it."""
    with suppress(BaseException):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # it fails again in the parent
        kernel = task()
        triton.runtime.driver.active.launcher_cls(kernel.src, kernel.metadata)
