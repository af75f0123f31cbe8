"""Machine code of the CPU kernels, kept in the user's cache between processes.

Numba's own cache unpickles whatever its files hold. A file here begins with two
checksums, of what made the code and of the code, and nothing is unpickled before both
are right. A file that is damaged or belongs to another user is ignored: the kernel is
then compiled again. A cache that cannot be written is no error either: the kernel is
then kept in memory only.

Compiling takes seconds; a logger of its own says so.
"""

import hashlib
import logging
import os
import pickle
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import llvmlite
import numba
from numba.core import compiler, serialize, types
from numba.core.caching import NullCache
from numba.core.ccallback import CFunc

from textcapsules.base.files import read_regular
from textcapsules.model.kernels.cpu.link import KernelCompiler

__all__ = ["Kernel", "KernelCache", "cache_folder"]

# The modules that are compiled into a kernel.
SOURCES = ("cache", "call", "link", "simd", "maths", "forward", "backward")
CHECKSUM_BYTES = 32  # of SHA-256
MAX_BYTES = 1 << 26  # of a file; a kernel has half a megabyte

log = logging.getLogger(__name__)
# That people wait for the compiler; base.progress shows it.
compiling = logging.getLogger("textcapsules.compiling")


class Kernel(CFunc):
    """A C function of one address, compiled or loaded when it is made."""

    def __init__(self, function: Any, name: str) -> None:
        super().__init__(
            function,
            ((types.voidptr,), types.void),
            locals={},
            options={"error_model": "numpy"},
            pipeline_class=KernelCompiler,
        )
        self._cache = KernelCache(name)
        self.compile()


class KernelCache(NullCache):
    """Where numba looks for a kernel before it compiles, and keeps it afterwards."""

    def __init__(self, name: str) -> None:
        self.name = name

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compiled kernel, or None where no trusted file holds it."""
        target_context.refresh()
        try:
            code = read_code(*self.place(target_context.codegen()))
            if code is not None:
                parts = pickle.loads(code)
                return compiler.CompileResult._rebuild(target_context, *parts)
        except Exception as error:  # for any reason: it can be compiled
            log.info("kernel %s is compiled again: %r", self.name, error)
        compiling.info("kernel %s", self.name)
        return None

    def save_overload(self, sig: Any, cres: Any) -> None:
        """Write the compiled kernel to the cache, if it can be written."""
        try:
            write_code(*self.place(cres.codegen), serialize.dumps(cres._reduce()))
        except Exception as error:  # a full disk, no home: it is in memory already
            log.info("kernel %s is not kept: %r", self.name, error)

    def place(self, codegen: Any) -> tuple[Path, bytes]:
        """Return the kernel's file, and a checksum of all that decides its code."""
        digest = hashlib.sha256()
        for source in SOURCES:
            digest.update((Path(__file__).parent / f"{source}.py").read_bytes())
        versions = (numba.__version__, llvmlite.__version__, sys.version)
        made_for = (self.name, *versions, codegen.magic_tuple())  # with the processor
        digest.update(repr(made_for).encode())
        name = f"{self.name}-{digest.hexdigest()[:16]}.kernel"
        return cache_folder() / name, digest.digest()


def read_code(path: Path, stamp: bytes) -> bytes | None:
    """Return a file's code if it is this user's, undamaged, and of this `stamp`."""
    try:
        if not (is_this_users(path.parent.stat()) and is_this_users(path.stat())):
            return None
        content = read_regular(path, MAX_BYTES)
    except OSError:
        return None
    checksums, code = content[: 2 * CHECKSUM_BYTES], content[2 * CHECKSUM_BYTES :]
    return code if checksums == stamp + code_checksum(stamp, code) else None


def write_code(path: Path, stamp: bytes, code: bytes) -> None:
    """Write a file that `read_code` reads, atomically, for its owner alone."""
    folder = path.parent
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not is_this_users(folder.stat()):
        raise PermissionError(f"{folder} belongs to another user")
    folder.chmod(0o700)
    descriptor, name = tempfile.mkstemp(dir=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(stamp + code_checksum(stamp, code) + code)
        Path(name).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise


def code_checksum(stamp: bytes, code: bytes) -> bytes:
    """Return the checksum that stands before the code."""
    return hashlib.sha256(stamp + code).digest()


def is_this_users(status: os.stat_result) -> bool:
    """Return whether a file is this user's, where the system has users."""
    return not hasattr(os, "geteuid") or status.st_uid == os.geteuid()


def cache_folder() -> Path:
    """Return the folder of machine code, of all versions of the kernels."""
    named, base = os.environ.get("NUMBA_CACHE_DIR"), os.environ.get("XDG_CACHE_HOME")
    if named:
        return Path(named) / "textcapsules"
    # The same place as data.corpora.cache_folder, which the model must not import.
    return (Path(base) if base else Path.home() / ".cache") / "textcapsules" / "kernels"
