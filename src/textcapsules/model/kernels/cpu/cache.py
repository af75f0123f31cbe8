"""Machine code of the CPU kernels, kept in the user's cache from process to process.

Numba's own cache reads whatever lies in its files, by pickle. A file here begins with
the sum of what made the code and the sum of the code, and nothing is unpickled before
both are as they must be. A file that is damaged, foreign or in the way is passed over:
the kernel is then compiled again. A cache that cannot be written is no fault of the
command either: the kernel then lives in memory alone.
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

__all__ = ["Kernel", "KernelCache", "cache_folder"]

# All that is compiled into a kernel.
SOURCES = (
    "cache",
    "simd",
    "rows",
    "layout",
    "parts",
    "passes",
    "forward",
    "backward",
)
SUM_BYTES = 32  # of SHA-256
MAX_BYTES = 1 << 26  # a kernel has half a megabyte

log = logging.getLogger(__name__)


class Kernel(CFunc):
    """A C function of one address, compiled or loaded when it is made."""

    def __init__(self, function: Any, name: str) -> None:
        super().__init__(
            function,
            ((types.voidptr,), types.void),
            locals={},
            options={"error_model": "numpy"},
        )
        self._cache = KernelCache(name)
        self.compile()


class KernelCache(NullCache):
    """Where numba asks for a kernel before it compiles, and leaves it afterwards."""

    def __init__(self, name: str) -> None:
        self.name = name

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compiled kernel, or None where there is none to trust."""
        target_context.refresh()
        try:
            code = read_code(*self.place(target_context.codegen()))
            if code is not None:
                parts = pickle.loads(code)
                return compiler.CompileResult._rebuild(target_context, *parts)
        except Exception as error:  # whatever the reason, it can be compiled
            log.info("kernel %s is compiled again: %r", self.name, error)
        return None

    def save_overload(self, sig: Any, cres: Any) -> None:
        """Keep the compiled kernel, if there is a place to keep it."""
        try:
            write_code(*self.place(cres.codegen), serialize.dumps(cres._reduce()))
        except Exception as error:  # a full disk, no home: it is in memory already
            log.info("kernel %s is not kept: %r", self.name, error)

    def place(self, codegen: Any) -> tuple[Path, bytes]:
        """Return the kernel's file, and the sum of all that decides its content."""
        digest = hashlib.sha256()
        for source in SOURCES:
            digest.update((Path(__file__).parent / f"{source}.py").read_bytes())
        versions = (numba.__version__, llvmlite.__version__, sys.version)
        made_for = (self.name, *versions, codegen.magic_tuple())  # the processor's too
        digest.update(repr(made_for).encode())
        name = f"{self.name}-{digest.hexdigest()[:16]}.kernel"
        return cache_folder() / name, digest.digest()


def read_code(path: Path, stamp: bytes) -> bytes | None:
    """Return the code in a file if it is ours, whole, and made by what `stamp` says."""
    try:
        if not (is_own(path.parent.stat()) and is_own(path.stat())):
            return None
        content = read_regular(path, MAX_BYTES)
    except OSError:
        return None
    sums, code = content[: 2 * SUM_BYTES], content[2 * SUM_BYTES :]
    return code if sums == stamp + code_sum(stamp, code) else None


def write_code(path: Path, stamp: bytes, code: bytes) -> None:
    """Write a file that `read_code` reads, at once and for its owner alone."""
    folder = path.parent
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not is_own(folder.stat()):
        raise PermissionError(f"{folder} belongs to another user")
    folder.chmod(0o700)
    descriptor, name = tempfile.mkstemp(dir=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(stamp + code_sum(stamp, code) + code)
        Path(name).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise


def code_sum(stamp: bytes, code: bytes) -> bytes:
    """Return the sum that stands before the code."""
    return hashlib.sha256(stamp + code).digest()


def is_own(status: os.stat_result) -> bool:
    """Tell whether a file is this user's, where there are users."""
    return not hasattr(os, "geteuid") or status.st_uid == os.geteuid()


def cache_folder() -> Path:
    """Return where machine code is kept, for all versions of the kernels."""
    named, base = os.environ.get("NUMBA_CACHE_DIR"), os.environ.get("XDG_CACHE_HOME")
    if named:
        return Path(named) / "textcapsules"
    # The same place as data.corpora.cache_folder, which the model must not import.
    return (Path(base) if base else Path.home() / ".cache") / "textcapsules" / "kernels"
