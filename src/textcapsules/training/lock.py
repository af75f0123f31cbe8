"""One run at a time in a folder, held by a lock of the operating system.

The system gives up a lock when its process ends, however it ends, so that a killed run
never blocks the next. The file tells who holds the lock; it is removed at the end.
"""

import errno
import json
import logging
import os
import platform
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from textcapsules.errors import ModelFolderError
from textcapsules.files import write_error

__all__ = ["LOCK", "check_unlocked", "locked"]

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
