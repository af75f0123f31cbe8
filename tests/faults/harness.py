"""Train in forked children of one process, and end or fail each at a chosen moment.

A fork of a process that has imported everything starts at once, where a new process
takes seconds. The moments are the operations on files: what a crash can leave behind
changes only there, so one child for each of them covers every moment there is. Run as a
script, since a fork needs a process without threads; it prints JSON.
"""

import errno
import importlib
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from textcapsules.cli import main
from textcapsules.model.kernels.cpu.route import has_numba, kernel


def before_operations(act: Callable[[str, Path], None]) -> None:
    """Call `act` before each operation that changes a file, and in the middle of each.

    Args:
        act: is given what is about to happen, and to which file.
    """
    touch, write, replace, unlink = (
        Path.touch,
        Path.write_bytes,
        Path.replace,
        Path.unlink,
    )
    fsync = os.fsync

    def touched(self: Path, *args: Any, **options: Any) -> None:
        act("touch", self)
        touch(self, *args, **options)

    def written(self: Path, content: bytes) -> int:
        write(self, content[: len(content) // 2])
        act("write", self)
        return write(self, content)

    def synced(descriptor: int) -> None:
        act("fsync", Path(f"/proc/self/fd/{descriptor}").readlink())
        fsync(descriptor)

    def replaced(self: Path, target: Path) -> Path:
        act("replace", Path(target))
        return replace(self, target)

    def unlinked(self: Path, missing_ok: bool = False) -> None:
        if self.exists():
            act("unlink", self)
        unlink(self, missing_ok)

    Path.touch, Path.write_bytes, Path.replace = touched, written, replaced  # type: ignore[method-assign,assignment]
    Path.unlink = unlinked  # type: ignore[method-assign]
    os.fsync = synced


def die_at(moment: int, kinds: set[str]) -> None:
    """Let this process be killed at one of the operations of some kinds."""
    left = [moment]

    def act(kind: str, path: Path) -> None:
        if kind in kinds:
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left[0] -= 1

    before_operations(act)


def fill_disk_at(moment: int, kinds: set[str]) -> None:
    """Let the disk be full from one of the operations of some kinds on."""
    left = [moment]

    def act(kind: str, path: Path) -> None:
        if kind in kinds:
            if left[0] <= 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            left[0] -= 1

    before_operations(act)


def die_after(seconds: float) -> None:
    """Let this process be killed at any instant, by a thread of its own."""

    def kill() -> None:
        time.sleep(seconds)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=kill, daemon=True).start()


def child(args: list[str], prepare: Callable[[], None] | None = None) -> dict[str, Any]:
    """Run the program in a fork and return how it ended and what it said."""
    # Not a pipe: whoever else holds its end would be waited for.
    with tempfile.TemporaryFile() as said:
        pid = os.fork()
        if pid == 0:
            os.dup2(said.fileno(), 2)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os._exit(run_here(args, prepare))
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        said.seek(0)
        return {"code": code, "err": said.read().decode()}


def run_here(args: list[str], prepare: Callable[[], None] | None) -> int:
    """Run the program in this process and return its exit code."""
    try:
        if prepare is not None:
            prepare()
        sys.argv = ["textcapsules", *args, "--json"]  # no lines on the way
        main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    except BaseException:
        traceback.print_exc()
        return 70
    finally:
        sys.stderr.flush()
    return 0


def cycle(
    folder: Path, flags: list[str], prepare: Callable[[], None]
) -> dict[str, Any]:
    """Train into a folder with something happening, then go on without."""
    first = child(["train", *flags, "--out", str(folder)], prepare)
    begun = (folder / "config.json").exists()
    going_on = ["--resume"] if begun else [*flags, "--out"]
    after = child(["train", *going_on, str(folder)])
    return {"first": first, "after": after, "begun": begun}


def run(mode: str, flags: list[str], base: Path) -> list[dict[str, Any]]:
    """Run cycles until one meets nothing more, or as many as chance has."""
    results: list[dict[str, Any]] = []
    if mode == "random":
        draw = random.Random(0)
        started = time.monotonic()
        child(["train", *flags, "--out", str(base / "whole")])
        usual = time.monotonic() - started
        for number in range(12):
            after = draw.uniform(0.02, 1.0) * usual
            folder = base / f"random{number}"
            results.append(cycle(folder, flags, lambda after=after: die_after(after)))
        return results
    happens = {"die": die_at, "full": fill_disk_at}[mode]
    kinds = {"touch", "write", "replace", "unlink"} if mode == "die" else {"write"}
    moment = 0
    while not results or results[-1]["first"]["code"] != 0:
        folder = base / f"{mode}{moment}"
        results.append(
            cycle(folder, flags, lambda moment=moment: happens(moment, kinds))
        )
        moment += 1
        assert moment < 90, "it never ends"
    return results


def import_all() -> None:
    """Import what a training would, and load its kernels, once for all children."""
    for name in ("sklearn.metrics", "torch._dynamo", "textcapsules.training.run"):
        importlib.import_module(name)
    torch.set_num_threads(1)  # a fork keeps no other threads
    if has_numba():
        for name in ("forward", "backward"):
            kernel(name, torch.float32)


if __name__ == "__main__":
    import_all()
    flags, base = json.loads(sys.argv[1]), Path(sys.argv[2])
    found = {mode: run(mode, flags, base) for mode in ("die", "full", "random")}
    sys.stdout.write(json.dumps(found) + "\n")
