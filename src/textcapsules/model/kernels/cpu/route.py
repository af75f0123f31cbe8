"""Routing on a CPU by compiled kernels: the same results as `reference`, sooner.

The kernels (`forward`, `backward`) are compiled by numba at their first use and kept in
the user's cache (`cache`), so that a second process loads them.
"""

import functools
import importlib.util
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from textcapsules.model.kernels.cpu.call import (
    C_FUNCTION,
    CHUNK_VECTORS,
    VECTOR_BYTES,
    Arrays,
    Gradients,
    Sizes,
    run,
)
from textcapsules.model.routing.reference import Routed, RoutingOptions

__all__ = ["load", "route_windows_cpu", "supports"]

NORMALISE_CODES = {"none": 0, "total": 1}
SQUASH_CODES = {"none": 0, "norm": 1, "sabour": 2, "released": 3, "exp": 4, "tanh": 5}
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
    gain: Tensor | None = None,
) -> str | None:
    """Return why the kernels cannot route this, or None if they can."""
    if not has_numba():
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
    if not options.compete:
        return "the parents do not compete"
    if options.squash not in SQUASH_CODES:
        return f"the squash {options.squash!r} is unknown"
    if options.normalise not in NORMALISE_CODES:
        return f"the normalisation {options.normalise!r} is unknown"
    backward = wants_gradient(capsules, transform, bias, gain)
    return compile_problem(capsules.dtype, backward)


def wants_gradient(*tensors: Tensor | None) -> bool:
    """Return whether a backward pass may follow."""
    required = any(t is not None and t.requires_grad for t in tensors)
    return torch.is_grad_enabled() and required


def route_windows_cpu(
    capsules: Tensor,
    transform: Tensor,
    bias: Tensor | None,
    mask: Tensor,
    options: RoutingOptions = RoutingOptions(),
    gain: Tensor | None = None,
    *,
    couplings: bool = False,
) -> Routed:
    """Route the capsules of every window, as `routing.route_windows` does.

    Args:
        capsules: (B, P, C, D), float32 or float64.
        transform: W, shared, (J, D, H).
        bias: β, (J, H), or None.
        mask: (B, W, K), False where a window's position must not vote.
        options: iterations, leaky softmax, amendment, squash, normalisation.
        gain: what normalised weights sum to, a number; None: 1.
        couplings: whether to return them; they take K·C·J numbers per window.

    Returns:
        Poses (B, W, J, H), lengths (B, W, J) and couplings (B, W, K·C, J) or None.
    """
    reason = supports(capsules, transform, bias, options, gain)
    if reason:
        raise ValueError(f"the CPU kernels cannot route this: {reason}.")
    keep = wants_gradient(capsules, transform, bias, gain)
    if options.normalise == "total":
        gain = capsules.new_ones(1) if gain is None else gain.to(capsules)
    inputs = (capsules, transform, bias, gain)
    return Routed(*Route.apply(*inputs, mask, options, couplings, keep))  # type: ignore[misc]


class Route(torch.autograd.Function):
    """Routing in windows, with its gradient."""

    @staticmethod
    def forward(
        ctx: Any, capsules, transform, bias, gain, mask, options, couplings, keep
    ):
        ctx.set_materialize_grads(False)
        capsules = capsules.detach().contiguous()
        mask = mask.bool().contiguous()
        sizes = measure(capsules, transform.shape, mask, options, couplings, keep)
        B, W, K = mask.shape
        J, H = transform.shape[0], transform.shape[2]
        # Zeros, because a window with no unmasked position is left as it is.
        poses = capsules.new_zeros(B, W, J, H)
        lengths = capsules.new_zeros(B, W, J)
        shape = (B, W, K * sizes.types, J) if couplings else (0,)
        coupled = capsules.new_zeros(shape)
        kept = (B * W, sizes.iterations, sizes.parent_lanes) if keep else (0, 0, 0)
        sums = capsules.new_empty(*kept, sizes.child_pad)
        totals = capsules.new_empty(kept)
        matrices = padded_matrices(transform.detach(), bias, sizes)
        gain = capsules.new_empty(0) if gain is None else gain.detach()
        tensors = (capsules, *matrices, poses, lengths, coupled, sums, totals, gain)
        arrays = Arrays(*(t.data_ptr() for t in tensors))
        run(kernel("forward", capsules.dtype), capsules, mask, sizes, arrays)
        ctx.save_for_backward(capsules, mask, *matrices, sums, totals, gain)
        ctx.options, ctx.has_bias = options, bias is not None
        ctx.transform = transform.shape
        return poses, lengths, coupled if couplings else None

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_poses, d_lengths, d_couplings):  # type: ignore[override]
        capsules, mask, push, pull, sums, totals, gain = ctx.saved_tensors
        J, D, H = ctx.transform
        B, P, C, _ = capsules.shape
        _, W, K = mask.shape
        has_couplings = d_couplings is not None
        sizes = measure(capsules, ctx.transform, mask, ctx.options, has_couplings, True)
        span = sizes.per_segment + K - 1
        d_capsules = capsules.new_empty(B, sizes.per_text, span, C, D)
        d_push = capsules.new_zeros(sizes.groups, *push.shape)
        d_gain = capsules.new_zeros(B, W) if sizes.normalise else None
        empty = capsules.new_empty(0)
        if d_poses is None:
            d_poses = capsules.new_zeros(B, W, J, H)
        if d_lengths is None:
            d_lengths = capsules.new_zeros(B, W, J)
        d_couplings = d_couplings if has_couplings else empty
        d_outputs = [t.contiguous() for t in (d_poses, d_lengths, d_couplings)]
        tensors = (capsules, push, pull, empty, empty, empty, sums, totals, gain)
        arrays = Arrays(*(t.data_ptr() for t in tensors))
        tensors = (*d_outputs, d_capsules, d_push, empty if d_gain is None else d_gain)
        gradients = Gradients(*(t.data_ptr() for t in tensors))
        backward = kernel("backward", capsules.dtype)
        run(backward, capsules, mask, sizes, arrays, gradients)
        d_push = d_push.sum(0)[:J, :, :H]
        d_bias = d_push[:, D] if ctx.has_bias else None
        d_transform = d_push[:, :D]
        if d_gain is not None:
            d_gain = d_gain.sum().view_as(gain)
        d_inputs = (fold(d_capsules, sizes, P), d_transform, d_bias, d_gain)
        return *d_inputs, None, None, None, None  # for mask and options


def fold(parts: Tensor, sizes: Sizes, positions: int) -> Tensor:
    """Add overlapping gradients of segments (B, S, span, C, D) up to (B, P, C, D)."""
    B, S, span, C, D = parts.shape
    if S == 1:
        return parts.squeeze(1)
    total = parts.new_zeros(B, positions, C, D)
    for part in range(S):  # always in this order
        start = part * sizes.per_segment
        end = min(start + span, positions)
        total[:, start:end] += parts[:, part, : end - start]
    return total


def padded_matrices(
    transform: Tensor, bias: Tensor | None, sizes: Sizes
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
    transform: torch.Size,
    mask: Tensor,
    options: RoutingOptions,
    couplings: bool,
    keep: bool,
) -> Sizes:
    """Return the sizes of a problem, and how it is cut."""
    (B, P, C, D), (J, _, H), (_, W, K) = capsules.shape, transform, mask.shape
    lanes = VECTOR_BYTES // capsules.element_size()

    def padded(n: int, step: int = lanes) -> int:
        return -(-n // step) * step

    # Few texts are cut into runs of windows, unless the overlaps would weigh more.
    cuts = max(1, min(-(-GROUPS // max(B, 1)), W // (4 * K)))
    per_segment = -(-W // cuts)
    per_text = -(-W // per_segment)
    children = (per_segment + K - 1) * C
    return Sizes(
        types=C,
        child_size=D,
        child_pad=padded(D),
        positions=P,
        window=K,
        windows=W,
        parents=J,
        parents_pad=padded(J, 4),
        parent_lanes=padded(J),
        parent_size=H,
        parent_pad=padded(H),
        iterations=options.iterations,
        leaky=int(options.leaky),
        amendment=int(options.amendment),
        normalise=NORMALISE_CODES[options.normalise],
        squash=SQUASH_CODES[options.squash],
        per_segment=per_segment,
        per_text=per_text,
        segments=B * per_text,
        groups=min(GROUPS, B * per_text),
        chunk=min(CHUNK_VECTORS * lanes, padded(CHUNK_SIZE // J + 1)),
        # An odd number of vectors: rows read together must not share cache places.
        stride=(padded(children) // lanes + 1 | 1) * lanes,
        keeps_sums=int(keep),
        has_couplings=int(couplings),
    )


@functools.cache
def has_numba() -> bool:
    """Return whether numba can be imported, without importing it."""
    try:
        return importlib.util.find_spec("numba") is not None
    except ValueError:  # what a module set to None in sys.modules raises
        return False


@functools.cache
def compiled_kernel(name: str, dtype: torch.dtype) -> Any:
    """Compile the `forward` or `backward` kernel, or load it from the cache."""
    from numba import types

    from textcapsules.model.kernels.cpu.backward import backward_kernel
    from textcapsules.model.kernels.cpu.forward import forward_kernel

    compile_kernel = forward_kernel if name == "forward" else backward_kernel
    return compile_kernel(types.float32 if dtype == torch.float32 else types.float64)


@functools.cache
def kernel(name: str, dtype: torch.dtype) -> Any:
    """Return the `forward` or `backward` kernel as a C function."""
    return C_FUNCTION(compiled_kernel(name, dtype).address)


def load(dtype: torch.dtype, *, backward: bool) -> None:
    """Compile the kernels or load them from the cache, ahead of their first use."""
    if has_numba():
        compile_problem(dtype, backward)


@functools.cache
def compile_problem(dtype: torch.dtype, backward: bool) -> str | None:
    """Return why this machine cannot compile the kernels, or None if it can."""
    try:
        for name in ("forward", "backward") if backward else ("forward",):
            kernel(name, dtype)
    except Exception as error:  # a compiler may be broken in any way
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        return f"the kernels cannot be compiled ({reason:.200})"
    return None
