"""Compiling the CPU kernels, or loading them, and running them on threads.

They run on PyTorch's threads, not on numba's threading layers, of which one cannot be
called from two threads at once, one not after a fork, and all compete with PyTorch's
for the cores.
"""

import ctypes
import functools
import importlib
import itertools
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

__all__ = [
    "CHUNK_VECTORS",
    "VECTOR_BYTES",
    "backward_kernel",
    "forward_kernel",
    "layout",
    "problem",
    "run",
]

PACKAGE = "textcapsules.model.kernels.cpu"
C_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
VECTOR_BYTES = 64
CHUNK_VECTORS = 8  # as in cpu_parts, which cannot be imported without numba


def workspace(sizes: Any, like: Tensor, back: bool) -> list[int]:
    """Return how many numbers each part of Children, Parents and Pass has."""
    slots, lanes = sizes.iterations, VECTOR_BYTES // like.element_size()
    below = sizes.slot * sizes.child_pad
    above = sizes.parents_pad * sizes.parent_pad
    columns = sizes.child_pad * sizes.stride
    one, wide = sizes.slot, int(back)
    logits = 2 * sizes.parents_pad * (CHUNK_VECTORS + 1) * lanes
    children = (columns, columns, sizes.stride, sizes.stride)
    children += (wide * columns, wide * sizes.stride, wide * sizes.stride)
    parents = (below, one, above, one, one, above, below, one)
    work = (logits, below, sizes.parents_pad * lanes, below, one, above, 2 * below, one)
    return [*children, *(slots * n for n in parents), *work]


def run(kernel: Any, capsules: Tensor, mask: Tensor, sizes: Any, *tensors: Any) -> None:
    """Run a kernel on as many threads as PyTorch uses, this among them."""
    n_threads = max(1, min(torch.get_num_threads(), sizes.groups))
    lengths = workspace(sizes, capsules, len(tensors) > 1)
    memory = torch.empty(n_threads, sum(lengths), dtype=capsules.dtype)
    block = [0, 0, 0]
    for own in memory:
        starts = itertools.accumulate(lengths[:-1], initial=0)
        places = [own.data_ptr() + own.element_size() * start for start in starts]
        part = [mask.data_ptr(), *sizes, *itertools.chain(*tensors), *places]
        block += part
        block[2] = len(part)
    data = (ctypes.c_int64 * len(block))(*block)
    parallel = None if forked else team()
    if n_threads == 1:
        kernel(data)
    elif parallel is not None:
        parallel(kernel, data, n_threads, 0)
    else:
        others = [pool().submit(kernel, data) for _ in range(n_threads - 1)]
        kernel(data)
        for other in others:
            other.result()


@functools.cache
def team() -> Any:
    """Return a function that runs another on PyTorch's own threads, or None.

    Threads of ours would wait for a core: those of PyTorch go on spinning on it for
    milliseconds after each operation (forward pass of the paper's layer on two cores:
    6.8 ms instead of 3.9). GOMP_parallel is how compiled OpenMP code starts a parallel
    region; PyTorch's library finds the one it was linked with.
    """
    library = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    try:
        parallel = ctypes.CDLL(str(library)).GOMP_parallel
    except (OSError, AttributeError):  # another system, or another OpenMP
        return None
    parallel.argtypes = (C_FUNCTION, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)
    parallel.restype = None
    return parallel


@functools.cache
def pool() -> ThreadPoolExecutor:
    """Return threads of our own, for where PyTorch's cannot be had."""
    return ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="textcapsules")


def note_fork() -> None:
    """Remember that this process is a fork: it has none of its parent's threads."""
    global forked
    forked = True
    pool.cache_clear()


forked = False
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=note_fork)


def layout() -> ModuleType:
    """Return the module of what the kernels are called with; it needs numba."""
    return importlib.import_module(f"{PACKAGE}.layout")


@functools.cache
def forward_kernel(dtype: torch.dtype) -> Any:
    """Return the forward pass for a type of numbers."""
    return C_FUNCTION(compile_cached("forward.forward_kernel", dtype).address)


@functools.cache
def backward_kernel(dtype: torch.dtype) -> Any:
    """Return the backward pass for a type of numbers."""
    return C_FUNCTION(compile_cached("backward.backward_kernel", dtype).address)


@functools.cache
def compile_cached(name: str, dtype: torch.dtype) -> Any:
    """Compile `module.function`, or load its machine code from the cache."""
    from numba import types

    module, function = name.split(".")
    number = types.float32 if dtype == torch.float32 else types.float64
    return getattr(importlib.import_module(f"{PACKAGE}.{module}"), function)(number)


@functools.cache
def problem(dtype: torch.dtype, back: bool) -> str | None:
    """Return why the kernels cannot be had on this machine, or None if they can."""
    try:
        forward_kernel(dtype)
        if back:
            backward_kernel(dtype)
    except Exception as error:  # of a compiler that is broken, in whatever way
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        return f"the kernels cannot be compiled ({reason:.200})"
    return None
