"""A run's folder: one run at a time, and nothing removed that no run has written.

The operating system releases the lock when its process ends, however it ends: a killed
run never blocks the next. The lock's file says who holds it, and is removed at the end.
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
from textcapsules.model.classifier import FASTTEXT_FILE, FORMER, MODEL_FILES
from textcapsules.text.encoder import ENCODER_FILES
from textcapsules.text.encoder_files import SOURCE_FILE
from textcapsules.text.outside import OUTSIDE_FILE

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

CHECKPOINT = "checkpoint.safetensors"
TENSORBOARD = "tensorboard"
OUR_FILES = (
    *MODEL_FILES,
    *ENCODER_FILES,
    SOURCE_FILE,
    OUTSIDE_FILE,
    FASTTEXT_FILE,
    f"{FASTTEXT_FILE}.sha256",
    FORMER,
)
LOCK = ".lock"
# Errors of file systems without locks, such as some network drives.
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)

log = logging.getLogger(__name__)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Make a folder and hold its lock; refuse a folder that another run holds."""
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
    with suppress(OSError):  # no lock, or no permission, which `locked` reports
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
        file.close()  # its holder removed it after we had opened it: try again


def release(file: IO[str], path: Path) -> None:
    """Remove the file, then release the lock: nobody can lock what is being removed."""
    with suppress(OSError):
        path.unlink(missing_ok=True)
    file.close()
    if sys.platform == "win32":  # where an open file cannot be removed
        with suppress(OSError):
            path.unlink(missing_ok=True)


def try_lock(file: IO[str]) -> bool:
    """Lock a file without waiting; return False if another process has it."""
    try:
        if sys.platform == "win32":
            import msvcrt

            file.seek(1 << 30)  # past the content, which others must be able to read
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
    """Return who holds the lock, as part of a sentence."""
    try:
        file.seek(0)
        holder = json.loads(file.read())
        return f"process {holder['pid']} on {holder['host']}, since {holder['since']}"
    except (OSError, ValueError, KeyError, TypeError):  # it is being written
        return "a process that has just begun"


def check_folder(folder: Path, overwrite: bool, *, may_replace: bool = True) -> None:
    """Refuse a folder that holds anything but an earlier run to be replaced.

    Without `may_replace` the command has no option to replace or resume that run.
    """
    try:
        for part in folder.parts:  # finds a name too long below a folder not yet made
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
        ways = "Pass --resume to go on with it, --overwrite to replace it, or name"
        raise ModelFolderError(
            f"{folder} must be empty; got an earlier run. "
            f"{ways if may_replace else 'Name'} another folder."
        )


def foreign_files(folder: Path) -> list[str]:
    """Return the files that no run of ours has written, by their names and content."""
    folders = [folder, folder / TENSORBOARD]
    paths = [path for part in folders if part.is_dir() for path in part.iterdir()]
    files = [path.relative_to(folder) for path in paths if path != folders[1]]
    names = [str(path) for path in files if not is_leftover(path)]
    foreign = [name for name in names if not is_named_as_ours(Path(name))]
    if not foreign and not has_our_mark(folder):
        foreign = names
    return sorted(foreign)


def is_named_as_ours(path: Path) -> bool:
    """Tell by its name whether a run may have written a file."""
    if path.parent == Path(TENSORBOARD):
        return path.name.startswith("events.out.tfevents")
    return str(path) in (*OUR_FILES, CHECKPOINT)


def is_leftover(path: Path) -> bool:
    """Tell whether a run that was killed while writing left this file."""
    return path.name == LOCK or (path.name.startswith(".") and path.suffix == ".tmp")


def has_our_mark(folder: Path) -> bool:
    """Tell whether a folder holds a run of ours, by its options or its record.

    A run that was killed early has written only the start of its record.
    """
    try:
        if (folder / "config.json").exists():
            return "textcapsules" in read_json(folder / "config.json")
        return "fingerprint" in read_json(folder / "training.json")
    except ModelFolderError:
        return False


def clear(folder: Path) -> None:
    """Remove an earlier run's files and no others; those that mark it as ours last."""
    shutil.rmtree(folder / TENSORBOARD, ignore_errors=True)
    tidy(folder)
    for name in reversed(OUR_FILES):
        (folder / name).unlink(missing_ok=True)


def tidy(folder: Path, *, keep_checkpoint: bool = False) -> None:
    """Remove what only an unfinished run needs, and what a killed one has left."""
    if not keep_checkpoint:
        (folder / CHECKPOINT).unlink(missing_ok=True)
    for name in (*OUR_FILES, CHECKPOINT):
        remove_leftovers(folder / name)
