"""Kernels compiled in forks: what is noted, what is on disk, and no process left."""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed")

from textcapsules.model.kernels.gpu import call
from textcapsules.model.kernels.gpu import compile as ahead

needs_forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
# Compiles for an H200 without one: a driver that tells of it, and loads nothing.
ON_NO_GPU = """
import logging, os, sys, torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

class Utils:
    def get_device_properties(self, device):
        return {"max_shared_mem": 232448}
    def load_binary(self, *_):
        return 1, 1, 32, 0, 1024

class Driver:
    utils = Utils()
    launcher_cls = staticmethod(lambda source, metadata: lambda *_: None)
    def get_current_target(self): return GPUTarget("cuda", 90, 32)
    def get_current_device(self): return 0
    def get_current_stream(self, device): return 0

driver.set_active(Driver())
from textcapsules.model.kernels.gpu import call
from textcapsules.model.kernels.gpu.compile import compile_planned, planned

said = []
logger = logging.getLogger("textcapsules.compiling")
logger.setLevel(logging.INFO)
logger.addHandler(handler := logging.Handler())
handler.emit = lambda record: said.append(record.getMessage())
rows = torch.zeros(64)
with planned() as launches:
    for block in (16, 32, 64, 16):
        call.run(call.fold_windows, (1,), rows, rows, 3, 4, 5, 16, BLOCK=block)
assert compile_planned(launches, processes=2) == 3
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    print(*said)
"""


def test_launches_are_noted_and_not_made() -> None:
    made = []
    kernel = SimpleNamespace(arg_names=["x_ptr", "n", "BLOCK"])

    class Kernel(SimpleNamespace):
        def __getitem__(self, grid):
            return lambda *arguments, **constants: made.append((arguments, constants))

    kernel = Kernel(arg_names=["x_ptr", "n", "BLOCK"])
    rows = torch.zeros(40)
    with ahead.planned() as launches:
        call.run(kernel, (1,), rows[1:], 7, BLOCK=16, OTHER=3)
        other = threading.Thread(target=call.run, args=(kernel, (1,), rows, 8))
        other.start()
        other.join()
    ((_, (given, n), constants),) = launches
    assert (n, constants) == (7, {"BLOCK": 16, "num_warps": 4})
    assert given.dtype == rows.dtype
    assert given.data_ptr() % 16 == rows[1:].data_ptr() % 16
    assert given.numel() <= 17
    assert [arguments[1] for arguments, _ in made] == [8]
    call.run(kernel, (1,), rows, 9)
    assert [arguments[1] for arguments, _ in made] == [8, 9]


def test_a_backward_pass_asks_in_the_thread_that_began_it() -> None:
    with ahead.planned():
        assert not torch.autograd.is_multithreading_enabled()
    assert torch.autograd.is_multithreading_enabled()


def test_a_system_without_forks_can_import_it() -> None:
    code = """
import os, signal
for module, name in ((os, "fork"), (signal, "SIGKILL")):
    if hasattr(module, name):
        delattr(module, name)
import textcapsules.model.kernels.gpu.compile
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.fixture
def forks(monkeypatch) -> list[int]:
    """The process numbers of all forks a test makes."""
    made, fork = [], os.fork

    def counted() -> int:
        made.append(fork())
        return made[-1]

    monkeypatch.setattr(ahead.os, "fork", counted)
    return made


def assert_none_is_left(forks: list[int]) -> None:
    for process in forks:
        with pytest.raises(ChildProcessError):
            os.waitpid(process, os.WNOHANG)


@needs_forks
def test_every_task_has_its_fork_and_none_is_left(tmp_path, monkeypatch, forks) -> None:
    monkeypatch.setattr(ahead, "MOST_SECONDS", 0.5)

    def fails():
        raise KeyboardInterrupt

    tasks = [lambda n=n: (tmp_path / str(n)).touch() for n in range(5)]
    ahead.fork_all([*tasks, fails, lambda: time.sleep(60)], 3)
    assert sorted(path.name for path in tmp_path.iterdir()) == list("01234")
    assert len(forks) == len(tasks) + 2
    assert_none_is_left(forks)


@needs_forks
def test_no_fork_is_left_after_an_interrupt(monkeypatch, forks) -> None:
    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(ahead.time, "sleep", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ahead.fork_all([lambda: os.read(os.pipe()[0], 1)] * 3, 2)
    assert len(forks) == 2
    assert_none_is_left(forks)


@needs_forks
def test_a_fork_whose_parent_is_gone_ends_too(monkeypatch) -> None:
    monkeypatch.setattr(ahead, "MOST_SECONDS", 0.3)
    begun = time.monotonic()
    _, status = os.waitpid(ahead.fork(lambda: time.sleep(5)), 0)
    assert time.monotonic() - begun < 3
    assert os.WTERMSIG(status) == signal.SIGALRM


@needs_forks
def test_an_interrupt_as_a_fork_begins_ends_it_alone(
    tmp_path, monkeypatch, forks
) -> None:
    fork = ahead.os.fork  # the fixture's

    def interrupted() -> int:
        if process := fork():
            return process
        raise KeyboardInterrupt

    monkeypatch.setattr(ahead.os, "fork", interrupted)
    parent = os.getpid()
    try:
        ahead.fork_all([print], 2)
    finally:
        if os.getpid() != parent:  # a copy of the whole test session goes on
            (tmp_path / "went-on").touch()
            os._exit(1)
    assert not list(tmp_path.iterdir())
    assert_none_is_left(forks)


@needs_forks
def test_a_system_without_room_for_processes_is_no_error(monkeypatch) -> None:
    def refused():
        raise BlockingIOError("no more processes")

    monkeypatch.setattr(ahead.os, "fork", refused)
    ahead.fork_all([print] * 3, 2)


def test_no_two_kernels_are_loaded_at_the_same_time(monkeypatch) -> None:
    from triton.runtime import _async_compile

    monkeypatch.setattr(ahead, "is_on_disk", lambda key: True)
    # Whoever loads a kernel waits a moment for somebody who loads one as well.
    two, met, loaded = threading.Barrier(2), [], []

    class Compiled:
        @property
        def run(self) -> None:
            with suppress(threading.BrokenBarrierError):  # nobody came
                met.append(two.wait(timeout=0.3))
            loaded.append(self)

    class Kernel(SimpleNamespace):
        src = ""

        def warmup(self, key, grid) -> None:
            mode = _async_compile.active_mode.get()
            assert mode is not None
            mode.submit(key, Compiled, lambda kernel: None)

    launches = [call.Launch(Kernel(), (key,), {}) for key in "abc"]
    threads = [
        threading.Thread(target=ahead.compile_planned, args=(launches, 2))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(loaded) == 6
    assert met == []


@pytest.mark.slow  # two processes that load Triton
@needs_forks
def test_kernels_are_compiled_once_and_said_once(tmp_path) -> None:
    env = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path)}
    env.pop("TRITON_INTERPRET", None)
    said = [
        subprocess.run(
            [sys.executable, "-c", ON_NO_GPU],
            env=env, check=True, capture_output=True, text=True,
        ).stdout.strip()
        for _ in range(2)
    ]  # fmt: skip
    assert said == ["3 kernels", ""]
