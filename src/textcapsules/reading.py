"""Read a file that must be one: no pipe to wait for, no device, nothing endless."""

import errno
import os
import stat
from pathlib import Path

__all__ = ["check_regular", "read_regular"]

KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
}


def read_regular(path: Path | str, max_bytes: int) -> bytes:
    """Return a file's bytes; an `OSError` tells what else is there, or too much."""
    flags = os.O_RDONLY | getattr(os, "O_BINARY", 0)
    # To open a pipe waits for its writer, unless told not to.
    descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    try:
        status = os.fstat(descriptor)
        refuse_others(status)
        if status.st_size > max_bytes:
            raise OSError(
                errno.EFBIG, f"{status.st_size:,} bytes, more than {max_bytes:,}"
            )
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(max_bytes)
    finally:
        os.close(descriptor)


def check_regular(path: Path | str) -> None:
    """Raise an `OSError` unless there is a regular file, for libraries that open it."""
    refuse_others(Path(path).stat())


def refuse_others(status: os.stat_result) -> None:
    """Raise an `OSError` that names what is no regular file."""
    if not stat.S_ISREG(status.st_mode):
        kind = KINDS.get(stat.S_IFMT(status.st_mode), "something else")
        raise OSError(errno.EINVAL, f"{kind} in place of a file")
