"""One run at a time in a folder, held by a lock of the operating system.

The system gives up a lock when its process ends, however it ends, so that a killed run
never blocks the next. The file tells who holds the lock; it is removed at the end.

Whose folder is it? A run removes nothing of anyone else's.
"""

import errno
import json
import logging
import os
import platform
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from textcapsules.base.errors import ModelFolderError
from textcapsules.base.files import remove_leftovers, write_error
from textcapsules.base.sums import read_json
from textcapsules.model.classifier import FASTTEXT_FILE, MODEL_FILES

__all__ = [
    "CHECKPOINT",
    "LOCK",
    "TENSORBOARD",
    "check_folder",
    "check_unlocked",
    "clear",
    "locked",
    "tidy",
]

LOCK = ".lock"
# File systems without locks, as some over a network.
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)

log = logging.getLogger(__name__)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder, which is made; refuse one that another run holds."""
    path = folder / LOCK
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = take(path, "a+")
        write_holder(file)
    except OSError as error:
        raise write_error(folder, error) from error
    try:
        yield
    finally:
        release(file, path)


def check_unlocked(folder: Path) -> None:
    """Refuse a folder that another run holds; remove the file of one that was killed.

    A folder without a lock is not touched.
    """
    path = folder / LOCK
    with suppress(OSError):  # none, or not ours to open: `locked` says so
        release(take(path, "r+"), path)


def take(path: Path, mode: str) -> IO[str]:
    """Return the lock's file, opened and locked."""
    while True:
        file = path.open(mode, encoding="utf-8")
        if not try_lock(file):
            holder = read_holder(file)
            file.close()
            raise ModelFolderError(
                f"{path.parent} must not be in use; got another run in it: {holder}. "
                "Wait until it has ended, or name another folder."
            )
        with suppress(OSError):
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
        file.close()  # its holder removed it after we had opened it: look again


def release(file: IO[str], path: Path) -> None:
    """Remove the file, then give up the lock: nobody can lock what is being removed."""
    with suppress(OSError):
        path.unlink(missing_ok=True)
    file.close()
    if sys.platform == "win32":  # which removes no open file
        with suppress(OSError):
            path.unlink(missing_ok=True)


def try_lock(file: IO[str]) -> bool:
    """Lock a file without waiting, or tell that another process has it."""
    try:
        if sys.platform == "win32":
            import msvcrt

            file.seek(1 << 30)  # a place past the content, which others must read
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in NO_LOCKS:
            return False
        log.warning("the folder cannot be locked: %s", error.strerror)
    return True


def write_holder(file: IO[str]) -> None:
    """Write who holds the lock."""
    file.seek(0)
    file.truncate()
    since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    holder = {"pid": os.getpid(), "host": platform.node(), "since": since}
    file.write(json.dumps(holder))
    file.flush()


def read_holder(file: IO[str]) -> str:
    """Return who holds the lock, in words."""
    try:
        file.seek(0)
        holder = json.loads(file.read())
        return f"process {holder['pid']} on {holder['host']}, since {holder['since']}"
    except (OSError, ValueError, KeyError, TypeError):  # it is being written
        return "a process that has just begun"


CHECKPOINT = "checkpoint.safetensors"
TENSORBOARD = "tensorboard"
OUR_FILES = (*MODEL_FILES, FASTTEXT_FILE, f"{FASTTEXT_FILE}.sha256")


def check_folder(folder: Path, overwrite: bool) -> None:
    """Never write into a folder that holds anything, unless it is ours to replace."""
    try:
        for part in folder.parts:  # a name too long, below a folder not yet made
            Path(part).exists()
        in_the_way = folder.exists() and not folder.is_dir()
    except OSError as error:
        raise write_error(folder, error) from error
    if in_the_way:
        raise ModelFolderError(f"{folder} must be a folder; got a file.")
    foreign = foreign_files(folder)
    if foreign:
        raise ModelFolderError(
            f"{folder} must be empty or hold an earlier run; got "
            f"{', '.join(foreign[:3])}. Name another folder."
        )
    if (folder / "config.json").exists() and not overwrite:
        raise ModelFolderError(
            f"{folder} must be empty; got an earlier run. Pass --resume to go on with "
            "it, --overwrite to replace it, or name another folder."
        )


def foreign_files(folder: Path) -> list[str]:
    """Return what in a folder no run of ours has written, told by name and content."""
    found = [folder, folder / TENSORBOARD]
    paths = [path for part in found if part.is_dir() for path in part.iterdir()]
    files = [path.relative_to(folder) for path in paths if path != found[1]]
    names = [str(path) for path in files if not is_leftover(path)]
    foreign = [name for name in names if not is_named_as_ours(Path(name))]
    if not foreign and not has_our_mark(folder):
        foreign = names
    return sorted(foreign)


def is_named_as_ours(path: Path) -> bool:
    """Tell a file that a run may have written by its name."""
    if path.parent == Path(TENSORBOARD):
        return path.name.startswith("events.out.tfevents")
    return str(path) in (*OUR_FILES, CHECKPOINT)


def is_leftover(path: Path) -> bool:
    """Tell what a run killed while writing has left."""
    return path.name == LOCK or (path.name.startswith(".") and path.suffix == ".tmp")


def has_our_mark(folder: Path) -> bool:
    """Tell a run of ours: its options, or, killed before those, its record's start."""
    try:
        if (folder / "config.json").exists():
            return "textcapsules" in read_json(folder / "config.json")
        return "fingerprint" in read_json(folder / "training.json")
    except ModelFolderError:
        return False


def clear(folder: Path) -> None:
    """Remove an earlier run's files, and only those; its mark of ours goes last."""
    shutil.rmtree(folder / TENSORBOARD, ignore_errors=True)
    tidy(folder)
    for name in reversed(OUR_FILES):
        (folder / name).unlink(missing_ok=True)


def tidy(folder: Path, *, keep_checkpoint: bool = False) -> None:
    """Remove what only an unfinished run needs, or a killed one has left."""
    if not keep_checkpoint:
        (folder / CHECKPOINT).unlink(missing_ok=True)
    for name in (*OUR_FILES, CHECKPOINT):
        remove_leftovers(folder / name)
