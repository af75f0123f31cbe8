"""Routing on a CPU by compiled kernels: the same results as `reference`, sooner.

The kernels (`cpu_kernels`, `cpu_backward`) are compiled by numba at their first use and
kept in the user's cache, so a second process loads them. They run on threads of our
own, as many as PyTorch uses, without numba's threading layers: those cannot be called
from two threads at once, or not after a fork.
"""

import functools
import hashlib
import importlib
import importlib.util
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from textcapsules.model.routing.reference import Routed, RoutingOptions

__all__ = ["route_windows_cpu", "supports"]

SQUASH_CODES = {"none": 0, "norm": 1, "sabour": 2, "released": 3, "exp": 4, "tanh": 5}
FILES = ("cpu_simd", "cpu_parts", "cpu_kernels", "cpu_backward")
VECTOR_BYTES = 64
# Shares of the work, whatever the number of threads: so that results do not depend on
# it. More would balance better and cost one more dW each.
GROUPS = 16
# Logits of a chunk of children to all parents, in numbers: half a first-level cache.
CHUNK_SIZE = 2048


def supports(
    capsules: Tensor,
    transform: Tensor,
    bias: Tensor | None = None,
    options: RoutingOptions = RoutingOptions(),
) -> str | None:
    """Return why the kernels cannot route this, or None if they can."""
    if importlib.util.find_spec("numba") is None:
        return "numba is not installed"
    if transform.ndim != 3:
        return "the transform is not shared"
    tensors = [t for t in (capsules, transform, bias) if t is not None]
    if any(t.device.type != "cpu" for t in tensors):
        return f"a tensor is on {capsules.device}, not on the CPU"
    if capsules.dtype not in (torch.float32, torch.float64):
        return f"the type is {capsules.dtype}, neither float32 nor float64"
    if any(t.dtype != capsules.dtype for t in tensors):
        return "the types of capsules, transform and bias differ"
    if options.squash not in SQUASH_CODES:
        return f"the squash {options.squash!r} is unknown"
    return None


def route_windows_cpu(
    capsules: Tensor,
    transform: Tensor,
    bias: Tensor | None,
    mask: Tensor,
    options: RoutingOptions = RoutingOptions(),
    *,
    couplings: bool = False,
) -> Routed:
    """Route the capsules of every window, as `routing.route_windows` does.

    Args:
        capsules: (B, P, C, D), float32 or float64.
        transform: W, shared, (J, D, H).
        bias: β, (J, H), or None.
        mask: (B, W, K), False where a window's position must not vote.
        options: iterations, leaky softmax, amendment, squash.
        couplings: whether to return them; they take memory K·C·J a window.

    Returns:
        Poses (B, W, J, H), lengths (B, W, J) and couplings (B, W, K·C, J) or None.
    """
    reason = supports(capsules, transform, bias, options)
    if reason:
        raise ValueError(f"the CPU kernels cannot route this: {reason}.")
    return Routed(*Route.apply(capsules, transform, bias, mask, options, couplings))  # type: ignore[misc]


class Route(torch.autograd.Function):
    """Routing in windows, with its gradient."""

    @staticmethod
    def forward(ctx: Any, capsules, transform, bias, mask, options, couplings):
        ctx.set_materialize_grads(False)
        keep = any(ctx.needs_input_grad[:3])
        capsules = capsules.detach().contiguous()
        mask = mask.bool().contiguous()
        sizes = measure(capsules, transform, mask, options, couplings, keep)
        B, W, K = mask.shape
        J, H = transform.shape[0], transform.shape[2]
        # Zeros, because a window with no unmasked position is left as it is.
        poses = capsules.new_zeros(B, W, J, H)
        lengths = capsules.new_zeros(B, W, J)
        shape = (B, W, K * sizes.types, J) if couplings else (0,)
        coupled = capsules.new_zeros(shape)
        windows, slots = (B * W, sizes.iterations) if keep else (0, 0)
        sums = capsules.new_empty(windows, slots, sizes.parents_pad, sizes.child_pad)
        totals = capsules.new_empty(windows, slots, sizes.slot)
        matrices = both_ways(transform.detach(), bias, sizes)
        tensors = (capsules, mask, *matrices, poses, lengths, coupled, sums, totals)
        arrays = kernels().Arrays(*map(flat, tensors))
        run(kernels().forward, sizes, capsules, arrays)
        ctx.save_for_backward(capsules, mask, *matrices, sums, totals)
        ctx.options, ctx.couplings = options, couplings
        ctx.transform, ctx.has_bias = transform.shape, bias is not None
        return poses, lengths, coupled if couplings else None

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_poses, d_lengths, d_couplings):
        capsules, mask, push, pull, sums, totals = ctx.saved_tensors
        J, D, H = ctx.transform
        B, P, C, _ = capsules.shape
        _, W, K = mask.shape
        asked = d_couplings is not None
        like = capsules.new_empty(0, D, 0).new_empty(J, D, H)
        sizes = measure(capsules, like, mask, ctx.options, asked, True)
        span = sizes.per_segment + K - 1
        d_capsules = capsules.new_empty(B, sizes.per_text, span, C, D)
        d_push = capsules.new_zeros(sizes.groups, *push.shape)
        empty = capsules.new_empty(0)
        given = (
            capsules.new_zeros(B, W, J, H) if d_poses is None else d_poses.contiguous(),
            capsules.new_zeros(B, W, J)
            if d_lengths is None
            else d_lengths.contiguous(),
            d_couplings.contiguous() if asked else empty,
        )
        tensors = (capsules, mask, push, pull, empty, empty, empty, sums, totals)
        arrays = kernels().Arrays(*map(flat, tensors))
        gradients = kernels().Gradients(*map(flat, (*given, d_capsules, d_push)))
        run(backward_kernel(), sizes, capsules, arrays, gradients)
        d_push = d_push.sum(0)[:J, :, :H]
        d_bias = d_push[:, D] if ctx.has_bias else None
        return fold(d_capsules, sizes, P), d_push[:, :D], d_bias, None, None, None


def flat(tensor: Tensor) -> np.ndarray:
    """Return a contiguous tensor's memory as a flat array."""
    return tensor.detach().view(-1).numpy()


def fold(parts: Tensor, sizes: Any, positions: int) -> Tensor:
    """Add the gradients of segments (B, S, span, C, D), which overlap, to (B, P, C, D)."""
    B, S, span, C, D = parts.shape
    if S == 1:
        return parts.squeeze(1)
    whole = parts.new_zeros(B, positions, C, D)
    for part in range(S):  # always in this order
        start = part * sizes.per_segment
        end = min(start + span, positions)
        whole[:, start:end] += parts[:, part, : end - start]
    return whole


def both_ways(
    transform: Tensor, bias: Tensor | None, sizes: Any
) -> tuple[Tensor, Tensor]:
    """Return W with β below it, (J, D + 1, H), and Wᵀ, (J, H, D), padded with zeros."""
    J, D, H = transform.shape
    push = transform.new_zeros(sizes.parents_pad, D + 1, sizes.parent_pad)
    pull = transform.new_zeros(sizes.parents_pad, H, sizes.child_pad)
    push[:J, :D, :H] = transform
    pull[:J, :, :D] = transform.transpose(1, 2)
    if bias is not None:
        push[:J, D, :H] = bias.detach()
    return push, pull


def measure(
    capsules: Tensor,
    transform: Tensor,
    mask: Tensor,
    options: RoutingOptions,
    couplings: bool,
    keep: bool,
) -> Any:
    """Return the Sizes of a problem, and how it is cut."""
    (B, P, C, D), (J, _, H), (_, W, K) = capsules.shape, transform.shape, mask.shape
    lanes = VECTOR_BYTES // capsules.element_size()

    def padded(n: int, step: int = lanes) -> int:
        return -(-n // step) * step

    # Few texts are cut into runs of windows, unless the overlaps would weigh more.
    cuts = max(1, min(-(-GROUPS // max(B, 1)), W // (4 * K)))
    per_segment = -(-W // cuts)
    per_text = -(-W // per_segment)
    children = (per_segment + K - 1) * C
    return kernels().Sizes(
        types=C,
        child_size=D,
        child_pad=padded(D),
        positions=P,
        window=K,
        windows=W,
        parents=J,
        parents_pad=padded(J, 4),
        parent_size=H,
        parent_pad=padded(H),
        iterations=options.iterations,
        leaky=int(options.leaky),
        amendment=int(options.amendment),
        squash=SQUASH_CODES[options.squash],
        per_segment=per_segment,
        per_text=per_text,
        segments=B * per_text,
        groups=min(GROUPS, B * per_text),
        chunk=max(lanes, min(8 * lanes, padded(CHUNK_SIZE // J))),
        # An odd number of vectors: rows read together must not share cache places.
        stride=(padded(children) // lanes + 1 | 1) * lanes,
        slot=padded(J),
        keeps_sums=int(keep),
        has_couplings=int(couplings),
    )


def workspace(sizes: Any, like: Tensor, back: bool) -> tuple[Any, Any, Any]:
    """Return one thread's Children, Parents and Pass, cut from one piece of memory."""
    slots, lanes = sizes.iterations, VECTOR_BYTES // like.element_size()
    below = sizes.parents_pad * sizes.child_pad
    above = sizes.parents_pad * sizes.parent_pad
    columns = sizes.child_pad * sizes.stride
    one, wide = sizes.slot, int(back)
    logits = 2 * sizes.parents_pad * (sizes.chunk + lanes)
    children = (columns, columns, sizes.stride, sizes.stride)
    children += (wide * columns, wide * sizes.stride)
    parents = (below, one, above, one, one, above, below, one)
    work = (logits, sizes.parents_pad * lanes, below, one, above, 2 * below, one)
    lengths = [*children, *(slots * n for n in parents), *work]
    memory = flat(torch.empty(sum(lengths), dtype=like.dtype))
    ends = np.cumsum(lengths).tolist()
    parts = [memory[end - n : end] for end, n in zip(ends, lengths, strict=True)]
    k, first = kernels(), len(children) + len(parents)
    return (
        k.Children(*parts[: len(children)]),
        k.Parents(*parts[len(children) : first]),
        k.Pass(*parts[first:]),
    )


def run(kernel: Any, sizes: Any, like: Tensor, *arrays: Any) -> None:
    """Run a kernel on as many threads as PyTorch uses; this is one of them."""
    counter = np.zeros(1, np.int64)
    n_threads = min(torch.get_num_threads(), sizes.groups)
    back = len(arrays) > 1
    calls = [
        (sizes, *arrays, *workspace(sizes, like, back), counter)
        for _ in range(max(n_threads, 1))
    ]
    others = [pool().submit(kernel, *call) for call in calls[1:]]
    kernel(*calls[0])
    for other in others:
        if not other.cancel():  # one that has not begun finds nothing left to do
            other.result()


@functools.cache
def pool() -> ThreadPoolExecutor:
    """Return the threads beside the caller's."""
    return ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="textcapsules")


if hasattr(os, "register_at_fork"):  # a forked child has none of its parent's threads
    os.register_at_fork(after_in_child=pool.cache_clear)


@functools.cache
def kernels() -> ModuleType:
    """Import the forward kernels, with their machine code cached."""
    return import_cached("textcapsules.model.routing.cpu_kernels")


@functools.cache
def backward_kernel() -> Any:
    """Import the backward kernel, with its machine code cached."""
    return import_cached("textcapsules.model.routing.cpu_backward").backward


def import_cached(name: str) -> ModuleType:
    """Import a module whose numba functions are kept in our folder of the cache.

    Numba asks for the folder when it decorates, and looks only at the age of a
    function's own file; ours carries the sum of all files that are compiled together.
    NUMBA_CACHE_DIR, where set, stays in force.
    """
    from numba import config

    before = config.CACHE_DIR
    try:
        config.CACHE_DIR = before or str(code_folder())
        return importlib.import_module(name)
    finally:
        config.CACHE_DIR = before


@functools.cache
def code_folder() -> Path:
    """Return a folder for machine code that can be written to."""
    digest = hashlib.sha256()
    for name in FILES:
        digest.update((Path(__file__).parent / f"{name}.py").read_bytes())
    base = os.environ.get("XDG_CACHE_HOME")
    cache = (Path(base) if base else Path.home() / ".cache") / "textcapsules"
    folder = cache / "kernels" / digest.hexdigest()[:16]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError:  # no home, or one that is read-only
        return Path(tempfile.mkdtemp(prefix="textcapsules-kernels-"))
