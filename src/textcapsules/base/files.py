"""Write files whole or not at all, and read only what is a regular file.

A file is written under a temporary name in its own folder, flushed to the disk and then
renamed to its own name: after ``kill -9`` or on a full disk, the old content is intact.
Pipes, devices and folders are refused before they are read: they may never end.
"""

import errno
import hashlib
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from textcapsules.base.errors import WriteError

__all__ = [
    "REMEDIES",
    "atomic_path",
    "check_new_file",
    "check_regular",
    "file_sha256",
    "json_bytes",
    "read_regular",
    "remedy",
    "remove_leftovers",
    "write_bytes",
    "write_error",
    "write_json",
    "write_tensors",
    "write_text",
]

# What to do if the operating system refuses to write.
REMEDIES = {
    errno.ENOSPC: "Free some space or name another place",
    errno.EDQUOT: "Free some space or name another place",
    errno.EROFS: "Name a place on a disk that is not read-only",
    errno.EACCES: "Get the permission to write there, or name another place",
    errno.EPERM: "Get the permission to write there, or name another place",
    errno.ENAMETOOLONG: "Give it a shorter name",
    errno.ENOTDIR: "Name a place that is not below a file",
    errno.EEXIST: "Name a place that is not below a file",
    errno.EISDIR: "Name a file, not a folder",
}


KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
}


def remedy(error: OSError) -> str:
    """Return what to do about an error of the operating system."""
    return REMEDIES.get(error.errno or errno.ENOSPC, "Name another place")


def write_error(path: Path | str, error: OSError) -> WriteError:
    """Return the one-line error for a path that could not be written."""
    return WriteError(
        f"{path} must be writable; got {error.strerror or error}. {remedy(error)}; "
        "nothing was replaced."
    )


@contextmanager
def atomic_path(path: Path | str) -> Iterator[Path]:
    """Yield a temporary path that replaces `path` unless the block fails."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.touch()
        mode = temporary.stat().st_mode  # as the user's umask says
        yield temporary
        temporary.chmod(mode)  # some libraries make files that only the owner reads
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        temporary.replace(path)
    except OSError as error:
        raise write_error(path, error) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def check_new_file(path: Path, overwrite: bool) -> None:
    """Refuse a folder in place of a file to write, and to replace a file unasked."""
    if path.is_dir():
        raise WriteError(f"{path} must be a file to write; got a folder. Name a file.")
    if path.exists() and not overwrite:
        raise WriteError(
            f"{path} must not exist yet; got an existing file. Name another, or pass "
            "--overwrite."
        )


def remove_leftovers(path: Path | str) -> None:
    """Remove the temporary files that killed processes have left beside `path`."""
    path = Path(path)
    for leftover in path.parent.glob(f".{path.name}.*.tmp"):
        if leftover.name.split(".")[-2].isdigit():
            leftover.unlink(missing_ok=True)


def write_bytes(path: Path | str, content: bytes) -> None:
    """Write `content` to `path` atomically."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)


def write_text(path: Path | str, content: str) -> None:
    """Write `content` to `path` atomically, as UTF-8."""
    write_bytes(path, content.encode())


def write_json(path: Path | str, value: Any) -> None:
    """Write `value` to `path` atomically, as indented JSON."""
    write_bytes(path, json_bytes(value))


def json_bytes(value: Any) -> bytes:
    """Return `value` as indented JSON."""
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


def write_tensors(
    path: Path | str, tensors: dict[str, Any], metadata: dict[str, str] | None = None
) -> None:
    """Write torch tensors to `path` atomically, as safetensors.

    The content goes through memory: a killed process would leave behind the temporary
    file of the library's own `save_file`.
    """
    from safetensors.torch import save

    write_bytes(path, save(tensors, metadata=metadata))


def file_sha256(path: Path | str) -> str:
    """Return the SHA-256 of a file's bytes, in hexadecimal."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_regular(path: Path | str, max_bytes: int) -> bytes:
    """Return a file's bytes; an `OSError` says that it is no file, or too large."""
    flags = os.O_RDONLY | getattr(os, "O_BINARY", 0)
    # Without O_NONBLOCK, opening a pipe waits for its writer.
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
    """Raise an `OSError` unless `path` is a regular file, before a library opens it."""
    refuse_others(Path(path).stat())


def refuse_others(status: os.stat_result) -> None:
    """Raise an `OSError` that says what is there, unless it is a regular file."""
    if not stat.S_ISREG(status.st_mode):
        kind = KINDS.get(stat.S_IFMT(status.st_mode), "something else")
        raise OSError(errno.EINVAL, f"{kind} in place of a file")
