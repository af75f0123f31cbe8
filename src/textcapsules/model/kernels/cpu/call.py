"""What the CPU kernels are called with, and the threads that they run on.

A kernel is a C function of one address, that of a block of int64: the next group, the
next thread, the length of a thread's part, and one part per thread. A part holds the
address of the mask, Sizes, Arrays, Gradients, and the thread's own Children, Parents
and Scratch. The classes below name the numbers of a part; inside the kernels, those
that are addresses become pointers.

The kernels run on PyTorch's threads, not on numba's threading layers, of which one
cannot be called from two threads at once, one not after a fork, and all compete with
PyTorch's for the cores. Nothing here needs numba.
"""

import ctypes
import functools
import itertools
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

__all__ = [
    "BLOCK_HEAD",
    "CHUNK_VECTORS",
    "C_FUNCTION",
    "VECTOR_BYTES",
    "Arrays",
    "Children",
    "Gradients",
    "Parents",
    "Scratch",
    "Sizes",
    "run",
]

C_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
BLOCK_HEAD = 3  # numbers before the first part
VECTOR_BYTES = 64
CHUNK_VECTORS = 8  # vectors of children whose logits are held at once


class Sizes(NamedTuple):
    """All whole numbers of a problem, the options among them."""

    types: int  # C
    child_size: int  # D
    child_pad: int  # D in whole vectors
    positions: int  # P
    window: int  # K
    windows: int  # W
    parents: int  # J
    parents_pad: int  # J as a multiple of four
    parent_lanes: int  # J in whole vectors
    parent_size: int  # H
    parent_pad: int  # H in whole vectors
    iterations: int  # R
    leaky: int
    amendment: int
    normalise: int
    squash: int
    per_segment: int  # windows
    per_text: int  # segments
    segments: int  # of the whole batch
    groups: int
    chunk: int  # children whose logits are held at once
    stride: int  # of a row of columns
    keeps_sums: int
    has_couplings: int


class Arrays(NamedTuple):
    """Addresses of the tensors of a forward pass."""

    capsules: int  # (B, P, C, D)
    push: int  # W and below it β, (J_pad, D + 1, H_pad)
    pull: int  # W transposed, (J_pad, H, D_pad)
    poses: int  # (B, W, J, H)
    lengths: int  # (B, W, J)
    couplings: int  # (B, W, K·C, J) or empty
    sums: int  # Σ_i c_ij u_i of every pass, (B, W, R, J_lanes, D_pad), or empty
    totals: int  # Σ_i c_ij, (B, W, R, J_lanes), or empty
    gain: int  # what normalised weights sum to, one number, or empty


class Gradients(NamedTuple):
    """Addresses of a backward pass's further tensors; none in a forward pass."""

    poses: int = 0  # these three are read
    lengths: int = 0
    couplings: int = 0  # or empty
    capsules: int = 0  # written: (segments, positions of a segment, C, D)
    push: int = 0  # (groups, J_pad, D + 1, H_pad)
    gain: int = 0  # (B, W) or empty


class Children(NamedTuple):
    """The capsules of a segment, and their weights in its present window."""

    rows: int  # (I, D_pad)
    columns: int  # (D_pad, stride)
    norms: int  # |u|
    weights: int  # w, 0 where masked and in the lanes past the window
    d_columns: int
    d_norms: int  # of a window that is normalised, dw until its last pass
    d_norms_before: int  # of the windows before it


class Parents(NamedTuple):
    """The parents of a window, in every iteration."""

    sums: int  # (R, J_lanes, D_pad)
    totals: int  # (R, J_lanes)
    inputs: int  # t, before the squash, (R, J_pad, H_pad)
    norms: int  # |t|, (R, J_lanes)
    lengths: int  # |v|, (R, J_lanes)
    poses: int  # v, (R, J_pad, H_pad)
    pulled: int  # A that the pass used, (R, J_lanes, D_pad); of the first, zeros
    offsets: int  # k, (R, J_lanes)


class Scratch(NamedTuple):
    """What a pass works in."""

    logits: int  # then couplings, (2 J_pad, logits_row)
    transposed: int  # A transposed, (D_pad, J_lanes)
    lane_sums: int  # (J_pad, lanes)
    d_pulled: int  # (J_pad, D_pad)
    d_offsets: int
    d_inputs: int  # (J_pad, H_pad)
    stacked: int  # gradient of the sums, J_pad rows below it A, (2 J_lanes, D_pad)
    d_totals: int


def workspace(sizes: Sizes, like: Tensor, backward: bool) -> list[int]:
    """Return how many numbers each array of Children, Parents and Scratch has."""
    lanes, one = VECTOR_BYTES // like.element_size(), sizes.parent_lanes
    below = sizes.parent_lanes * sizes.child_pad
    above = sizes.parents_pad * sizes.parent_pad
    columns, stride = sizes.child_pad * sizes.stride, sizes.stride
    logits = 2 * sizes.parents_pad * (CHUNK_VECTORS + 1) * lanes
    if backward:
        children = (columns, columns, stride, stride, columns, stride, stride)
    else:
        children = (columns, columns, stride, stride, 0, 0, 0)
    parents = (below, one, above, one, one, above, below, one)
    lane_sums = sizes.parents_pad * lanes
    scratch = (logits, below, lane_sums, below, one, above, 2 * below, one)
    return [*children, *(sizes.iterations * n for n in parents), *scratch]


def run(
    kernel: Any,
    capsules: Tensor,
    mask: Tensor,
    sizes: Sizes,
    arrays: Arrays,
    gradients: Gradients | None = None,
) -> None:
    """Run a kernel on as many threads as PyTorch uses, this one included."""
    n_threads = max(1, min(torch.get_num_threads(), sizes.groups))
    lengths = workspace(sizes, capsules, gradients is not None)
    memory = torch.empty(n_threads, sum(lengths), dtype=capsules.dtype)
    shared = [mask.data_ptr(), *sizes, *arrays, *(gradients or Gradients())]
    block = [0, 0, len(shared) + len(lengths)]
    for thread_memory in memory:
        start, size = thread_memory.data_ptr(), thread_memory.element_size()
        offsets = itertools.accumulate(lengths[:-1], initial=0)
        block += [*shared, *(start + size * offset for offset in offsets)]
    data = (ctypes.c_int64 * len(block))(*block)
    parallel = None if forked else torch_threads()
    if n_threads == 1:
        kernel(data)
    elif parallel is not None:
        parallel(kernel, data, n_threads, 0)
    else:
        others = [thread_pool().submit(kernel, data) for _ in range(n_threads - 1)]
        kernel(data)
        for other in others:
            other.result()


@functools.cache
def torch_threads() -> Any:
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
def thread_pool() -> ThreadPoolExecutor:
    """Return threads of our own, for where PyTorch's are not available."""
    return ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="textcapsules")


def mark_fork() -> None:
    """Remember that this process is a fork: it has none of its parent's threads."""
    global forked
    forked = True
    thread_pool.cache_clear()


forked = False
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=mark_fork)
