"""Machine code is taken from the cache only if it is what was put there."""

import ctypes
import logging
import os
import pickle
import random
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numba")

from numba import types
from numba.core import registry

from textcapsules.base.progress import COMPILING
from textcapsules.model.kernels.cpu import cache as cpu_cache
from textcapsules.model.kernels.cpu.cache import Kernel, KernelCache
from textcapsules.model.kernels.cpu.simd import pointer

pytestmark = pytest.mark.slow

C_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    return tmp_path / "textcapsules"


def adder(amount: int) -> Kernel:
    """Return a kernel, quickly compiled, that adds to the number at its address."""
    zero = types.int64(0)  # type: ignore[operator]

    def add(data):
        number = pointer(data, zero)
        number[0] += amount

    return Kernel(add, f"add-{amount}")


def answer(kernel: Kernel) -> int:
    number = ctypes.c_int64(40)
    address: Any = kernel.address
    C_FUNCTION(address)(ctypes.addressof(number))
    return number.value


def kernel_file(folder: Path, amount: int) -> Path:
    (path,) = folder.glob(f"add-{amount}-*.kernel")
    return path


def test_second_process_loads_what_the_first_compiled(folder: Path) -> None:
    assert [adder(2).cache_hits, adder(2).cache_hits] == [0, 1]
    assert answer(adder(2)) == 42
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(kernel_file(folder, 2).stat().st_mode) == 0o600


def test_compiling_is_told_and_loading_is_not(folder: Path, caplog) -> None:
    with caplog.at_level(logging.INFO, logger=COMPILING):
        adder(5)
        assert [r.getMessage() for r in caplog.records] == ["kernel add-5"]
        adder(5)
    assert len(caplog.records) == 1


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1 << random.randrange(8)
    path.write_bytes(content)


def cut(path: Path, length: int) -> None:
    path.write_bytes(path.read_bytes()[:length])


def in_its_place(path: Path, make: Callable[[Path], None]) -> None:
    path.unlink()
    make(path)


DAMAGE: dict[str, Callable[[Path], object]] = {
    **{f"cut to {n}": lambda path, n=n: cut(path, n) for n in (0, 1, 40, 64, 65, -1)},
    **{f"bit of {n}": lambda path, n=n: flip(path, n) for n in (0, 32, 64, 3000, -1)},
    "random bytes": lambda path: path.write_bytes(random.randbytes(5000)),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"."),
    "another kernel's": lambda path: path.write_bytes(
        kernel_file(path.parent, 7).read_bytes()
    ),
    "a pipe": lambda path: in_its_place(path, os.mkfifo),
    "missing": Path.unlink,
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_damaged_file_is_never_unpickled_and_is_made_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[Path], object]
) -> None:
    for amount in (2, 7):
        adder(amount)
    damage(kernel_file(folder, 2))
    with monkeypatch.context() as patch:
        patch.setattr(pickle, "loads", None)
        again = adder(2)
    assert (again.cache_hits, answer(again)) == (0, 42)
    healed = adder(2)
    assert (healed.cache_hits, answer(healed)) == (1, 42)
    assert len(list(folder.iterdir())) == 2


def test_code_of_other_sources_is_not_taken(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adder(2)
    old = kernel_file(folder, 2)
    monkeypatch.setattr(cpu_cache, "SOURCES", cpu_cache.SOURCES[:-1])
    assert adder(2).cache_hits == 0
    (new,) = set(folder.iterdir()) - {old}
    new.write_bytes(old.read_bytes())
    assert adder(2).cache_hits == 0


@pytest.mark.parametrize("source", cpu_cache.SOURCES)
def test_a_changed_source_is_compiled_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    copies = folder.parent / "sources"
    shutil.copytree(Path(cpu_cache.__file__).parent, copies)
    monkeypatch.setattr(cpu_cache, "__file__", str(copies / "cache.py"))
    assert [adder(2).cache_hits, adder(2).cache_hits] == [0, 1]
    with (copies / f"{source}.py").open("a") as file:
        file.write("\n")
    assert adder(2).cache_hits == 0


def test_every_module_that_is_compiled_is_a_source() -> None:
    modules = {path.stem for path in Path(cpu_cache.__file__).parent.glob("*.py")}
    assert set(cpu_cache.SOURCES) == modules - {"__init__", "route"}


def test_undamaged_file_that_cannot_be_loaded_is_made_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = cpu_cache.write_code
    with monkeypatch.context() as patch:
        patch.setattr(
            cpu_cache, "write_code", lambda path, stamp, _: write(path, stamp, b"no")
        )
        adder(2)
    again = adder(2)
    assert (again.cache_hits, answer(again), adder(2).cache_hits) == (0, 42, 1)


def no_cache_folder(folder: Path, patch: pytest.MonkeyPatch) -> None:
    folder.write_text("in the way")


def folder_in_the_files_place(folder: Path, patch: pytest.MonkeyPatch) -> None:
    adder(2)
    in_its_place(kernel_file(folder, 2), Path.mkdir)


def another_users(folder: Path, patch: pytest.MonkeyPatch) -> None:
    folder.mkdir()
    patch.setattr(os, "geteuid", lambda: os.getuid() + 1)


def no_home(folder: Path, patch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME"):
        patch.delenv(name, raising=False)
    patch.setattr(Path, "home", homeless)


def failing(name: str, error: OSError) -> Callable[[Path, pytest.MonkeyPatch], None]:
    def fail(*_: object, **__: object) -> None:
        raise error

    return lambda _, patch: patch.setattr(f"{cpu_cache.__name__}.{name}", fail)


UNUSABLE = {
    "a file is the folder": no_cache_folder,
    "a folder is the file": folder_in_the_files_place,
    "another user's": another_users,
    "no home": no_home,
    "disk full": failing("tempfile.mkstemp", OSError(28, "No space left on device")),
    "full at the end": failing("Path.replace", OSError(28, "No space left on device")),
    "read-only": failing("Path.replace", OSError(30, "Read-only file system")),
    "unreadable": failing("read_regular", PermissionError(13, "Permission denied")),
}


@pytest.mark.parametrize("spoil", UNUSABLE.values(), ids=UNUSABLE)
def test_cache_that_cannot_be_used_costs_only_time(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    spoil: Callable[[Path, pytest.MonkeyPatch], None],
) -> None:
    spoil(folder, monkeypatch)
    kernels = [adder(2), adder(2)]
    monkeypatch.undo()
    assert [(kernel.cache_hits, answer(kernel)) for kernel in kernels] == [(0, 42)] * 2
    left = list(folder.iterdir()) if folder.is_dir() else []
    assert all(path.name.startswith("add-2-") for path in left)


def test_file_of_another_user_in_our_folder_is_not_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adder(2)
    monkeypatch.setattr(
        cpu_cache, "is_this_users", lambda status: stat.S_ISDIR(status.st_mode)
    )
    assert adder(2).cache_hits == 0


ROUTE = """
import torch
from textcapsules.model.kernels.cpu import route as cpu
u = torch.arange(120.0).view(2, 5, 3, 4).sin()
W, mask = torch.arange(60.0).view(3, 4, 5).cos(), torch.ones(2, 4, 2).bool()
poses = cpu.route_windows_cpu(u, W, None, mask).poses.tolist()
"""


def test_damaged_kernel_of_the_routing_changes_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here: dict[str, Any] = {}
    exec(ROUTE, here)  # with the kernel of the tests before
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    target: Any = registry.cpu_target.target_context
    path, stamp = KernelCache("forward-float32").place(target.codegen())
    path.parent.mkdir()
    path.write_bytes(stamp + random.randbytes(100_000))
    there = subprocess.run(
        [sys.executable, "-c", f"{ROUTE}\nprint(poses)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert there.stdout.strip() == str(here["poses"])
    assert cpu_cache.read_code(path, stamp) is not None
