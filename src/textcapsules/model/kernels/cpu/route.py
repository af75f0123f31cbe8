"""Routing on a CPU by compiled kernels: the same results as `reference`, sooner.

The kernels (`cpu_kernels`, `cpu_backward`) are compiled by numba at their first use and
kept in the user's cache, so a second process loads them (`cpu_launch`, `cpu_cache`).
"""

import functools
import importlib.util
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from textcapsules.model.kernels.cpu.launch import (
    CHUNK_VECTORS,
    VECTOR_BYTES,
    backward_kernel,
    forward_kernel,
    layout,
    problem,
    run,
)
from textcapsules.model.routing.reference import Routed, RoutingOptions

__all__ = ["route_windows_cpu", "supports"]

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
    return problem(capsules.dtype, wants_gradient(capsules, transform, bias, gain))


def wants_gradient(*tensors: Tensor | None) -> bool:
    """Tell whether a backward pass may follow."""
    needed = any(t is not None and t.requires_grad for t in tensors)
    return torch.is_grad_enabled() and needed


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
        couplings: whether to return them; they take memory K·C·J a window.

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
        windows, slots = (B * W, sizes.iterations) if keep else (0, 0)
        sums = capsules.new_empty(windows, slots, sizes.slot, sizes.child_pad)
        totals = capsules.new_empty(windows, slots, sizes.slot)
        matrices = both_ways(transform.detach(), bias, sizes)
        gain = capsules.new_empty(0) if gain is None else gain.detach()
        tensors = (capsules, *matrices, poses, lengths, coupled, sums, totals, gain)
        arrays = layout().Arrays(*(t.data_ptr() for t in tensors))
        run(forward_kernel(capsules.dtype), capsules, mask, sizes, arrays)
        ctx.save_for_backward(capsules, mask, *matrices, sums, totals, gain)
        ctx.options, ctx.couplings = options, couplings
        ctx.transform, ctx.has_bias = transform.shape, bias is not None
        return poses, lengths, coupled if couplings else None

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *slopes: Tensor | None):  # type: ignore[override]
        d_poses, d_lengths, d_couplings = slopes
        capsules, mask, push, pull, sums, totals, gain = ctx.saved_tensors
        J, D, H = ctx.transform
        B, P, C, _ = capsules.shape
        _, W, K = mask.shape
        asked = d_couplings is not None
        sizes = measure(capsules, ctx.transform, mask, ctx.options, asked, True)
        span = sizes.per_segment + K - 1
        d_capsules = capsules.new_empty(B, sizes.per_text, span, C, D)
        d_push = capsules.new_zeros(sizes.groups, *push.shape)
        d_gain = capsules.new_zeros(B, W) if sizes.normalise else None
        empty = capsules.new_empty(0)
        given = (
            capsules.new_zeros(B, W, J, H) if d_poses is None else d_poses.contiguous(),
            capsules.new_zeros(B, W, J)
            if d_lengths is None
            else d_lengths.contiguous(),
            empty if d_couplings is None else d_couplings.contiguous(),
        )
        tensors = (capsules, push, pull, empty, empty, empty, sums, totals, gain)
        arrays = layout().Arrays(*(t.data_ptr() for t in tensors))
        tensors = (*given, d_capsules, d_push, empty if d_gain is None else d_gain)
        gradients = layout().Gradients(*(t.data_ptr() for t in tensors))
        run(backward_kernel(capsules.dtype), capsules, mask, sizes, arrays, gradients)
        d_push = d_push.sum(0)[:J, :, :H]
        d_bias = d_push[:, D] if ctx.has_bias else None
        d_transform = d_push[:, :D]
        if d_gain is not None:
            d_gain = d_gain.sum().view_as(gain)
        d_inputs = (fold(d_capsules, sizes, P), d_transform, d_bias, d_gain)
        return *d_inputs, None, None, None, None  # for mask and options


def fold(parts: Tensor, sizes: Any, positions: int) -> Tensor:
    """Add overlapping gradients of segments (B, S, span, C, D) up to (B, P, C, D)."""
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
    transform: torch.Size,
    mask: Tensor,
    options: RoutingOptions,
    couplings: bool,
    keep: bool,
) -> Any:
    """Return the Sizes of a problem, and how it is cut."""
    (B, P, C, D), (J, _, H), (_, W, K) = capsules.shape, transform, mask.shape
    lanes = VECTOR_BYTES // capsules.element_size()

    def padded(n: int, step: int = lanes) -> int:
        return -(-n // step) * step

    # Few texts are cut into runs of windows, unless the overlaps would weigh more.
    cuts = max(1, min(-(-GROUPS // max(B, 1)), W // (4 * K)))
    per_segment = -(-W // cuts)
    per_text = -(-W // per_segment)
    children = (per_segment + K - 1) * C
    return layout().Sizes(
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
        normalise=NORMALISE_CODES[options.normalise],
        squash=SQUASH_CODES[options.squash],
        per_segment=per_segment,
        per_text=per_text,
        segments=B * per_text,
        groups=min(GROUPS, B * per_text),
        chunk=min(CHUNK_VECTORS * lanes, padded(CHUNK_SIZE // J + 1)),
        # An odd number of vectors: rows read together must not share cache places.
        stride=(padded(children) // lanes + 1 | 1) * lanes,
        slot=padded(J),
        keeps_sums=int(keep),
        has_couplings=int(couplings),
    )


@functools.cache
def has_numba() -> bool:
    """Return whether numba can be imported, without doing so."""
    try:
        return importlib.util.find_spec("numba") is not None
    except ValueError:  # what a module set to None in sys.modules raises
        return False
