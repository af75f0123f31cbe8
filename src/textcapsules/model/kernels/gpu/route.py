"""Fused routing on a GPU: `route_windows_gpu`, the same contract as `route_windows`.

Two sets of Triton kernels share one algebra (`maths`). A short window is routed by one
program, all iterations on chip (`windows`); a long one, or one with many parents, is
cut into chunks of children and tiles of parents (`chunks`). Neither forms votes or
keeps logits; both recompute in the backward pass and add in a fixed order, so that the
same inputs give the same bits. Triton is imported at the first use.
"""

import importlib.util
import math
import os

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from textcapsules.model.functional import GPU_SQUASHES
from textcapsules.model.routing.reference import Routed, RoutingOptions

__all__ = ["PRECISIONS", "REGIMES", "route_windows_gpu", "supports"]

# How products of float32 are formed: exactly, by tensor cores on numbers rounded to 10
# bits, or by tensor cores on three such parts.
PRECISIONS = ("ieee", "tf32", "tf32x3")

# One program per window; chunks of its children, each with all parents; both in tiles.
REGIMES = ("window", "chunks", "tiles")

_LARGEST_POSE = 64
# A window's children pass through its program one tile after the other: beyond this,
# chunks in parallel are faster.
_SHORT_WINDOW = 512
# Entries of W, padded, that a program can hold to do the step of all parents.
_HELD_TRANSFORM = 16384
_HELD_BY_CHUNKS = 8192


def supports(
    capsules: Tensor,
    transform: Tensor,
    bias: Tensor | None = None,
    options: RoutingOptions = RoutingOptions(),
) -> str | None:
    """Return None if the kernels can route this, else the reason in words."""
    tensors = [t for t in (capsules, transform, bias) if t is not None]
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed"
    if transform.ndim != 3:
        return f"the transform is not shared: its shape is {tuple(transform.shape)}"
    if not (all(t.is_cuda for t in tensors) or interpreted):
        devices = ", ".join(sorted({t.device.type for t in tensors}))
        return f"the tensors are not on a CUDA device, but on {devices}"
    if odd := {t.dtype for t in tensors} - {torch.float32, torch.bfloat16}:
        return f"the numbers are {odd.pop()}, not float32 or bfloat16"
    if max(transform.shape[1:]) > _LARGEST_POSE:
        size = max(transform.shape[1:])
        return f"poses have {size} numbers, more than {_LARGEST_POSE}"
    if not (capsules.numel() and transform.numel()):
        return "there is nothing to route: a tensor is empty"
    if not options.compete:
        return "the parents do not compete"
    if options.squash not in (*GPU_SQUASHES, "none"):
        return f"the squash {options.squash!r} has no kernel"
    if options.normalise not in ("none", "total"):
        return f"the normalisation {options.normalise!r} has no kernel"
    return None


def route_windows_gpu(
    capsules: Tensor,
    transform: Tensor,
    bias: Tensor | None,
    mask: Tensor,
    options: RoutingOptions = RoutingOptions(),
    gain: Tensor | None = None,
    *,
    couplings: bool,
    precision: str = "ieee",
    regime: str = "auto",
) -> Routed:
    """Route the capsules of every window to J parents of its own, by fused kernels.

    Args:
        capsules: (B, P, C, D), float32 or bfloat16; sums and logits are float32.
        transform: W, shared, (J, D, H).
        bias: β, (J, H), or None.
        mask: (B, W, K), False where a window's position must not vote; any strides.
        options: iterations, leaky softmax, amendment, squash, normalisation.
        gain: what normalised weights of a window's children sum to, a number on the
            capsules' device; None: 1.
        couplings: whether to return them; else they are never stored, and None.
        precision: how float32 products are formed, one of `PRECISIONS`.
        regime: how the work is cut up, one of `REGIMES`; `auto` picks by size.

    Returns:
        Poses (B, W, J, H), lengths (B, W, J) and couplings (B, W, K·C, J) or None.
    """
    if reason := supports(capsules, transform, bias, options):
        raise ValueError(f"the GPU kernels cannot route this: {reason}.")
    _check_name("precision", precision, PRECISIONS)
    _check_name("regime", regime, ("auto", *REGIMES))
    from textcapsules.model.kernels.gpu.call import Call, power_of_two

    if options.normalise == "none":
        gain = None
    elif gain is None:
        gain = torch.ones((), device=capsules.device)
    if regime == "auto":
        held = math.prod(max(16, power_of_two(size)) for size in transform.shape)
        regime = _pick_regime(mask.shape[2] * capsules.shape[2], held)
    call = Call(
        capsules.contiguous(),
        transform.contiguous(),
        None if bias is None else bias.contiguous(),
        mask.view(torch.uint8),
        gain,
        options,
        precision,
        regime,
    )
    poses, lengths, coupled, totals = _Route.apply(*call, couplings)
    if coupled is not None and gain is not None:
        factor = gain / torch.where(totals > 0, totals, 1.0)  # (B·W,)
        coupled = (coupled * factor[:, None, None]).to(poses.dtype)
    outputs = (poses, lengths, coupled)
    lead = mask.shape[:2]
    return Routed(*(t if t is None else t.unflatten(0, lead) for t in outputs))  # type: ignore[arg-type]


def _check_name(argument: str, value: str, names: tuple[str, ...]) -> None:
    """Refuse a value that is none of the names."""
    if value not in names:
        expected = ", ".join(names)
        raise ValueError(f"{argument} must be one of {expected}; got {value!r}.")


def _pick_regime(children: int, transform: int) -> str:
    """Return the regime for windows of `children` and a padded W of so many entries."""
    if children <= _SHORT_WINDOW and transform <= _HELD_TRANSFORM:
        return "window"
    return "chunks" if transform <= _HELD_BY_CHUNKS else "tiles"


class _Route(torch.autograd.Function):
    """The kernels of one regime, and the reductions after the backward pass."""

    @staticmethod
    def forward(ctx, *arguments):
        from textcapsules.model.kernels.gpu import chunks, windows
        from textcapsules.model.kernels.gpu.call import Call

        *fields, couplings = arguments
        call = Call(*fields)
        ctx.kernels = windows if call.regime == "window" else chunks
        save = any(ctx.needs_input_grad)
        with torch.cuda.device_of(call.capsules):  # Triton launches on the current one
            *outputs, totals, saved = ctx.kernels.forward(call, couplings, save)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*call[:5], totals, *saved)
        ctx.rest = call[5:]
        return *outputs, totals

    @staticmethod
    @once_differentiable
    def backward(ctx, *gradients):  # type: ignore[override]
        from textcapsules.model.kernels.gpu.call import (
            Call,
            Gradients,
            fold,
            reduce_transform,
        )

        wanted = ctx.needs_input_grad
        d_inputs: list[Tensor | None] = [None] * len(wanted)
        if all(g is None for g in gradients):
            return tuple(d_inputs)
        call = Call(*ctx.saved_tensors[:5], *ctx.rest)
        saved = ctx.saved_tensors[5:]  # totals, sums, and what else `backward` reads
        du, right, slopes = ctx.kernels.backward(call, Gradients(*gradients), saved)
        if wanted[0]:
            d_inputs[0] = fold(call, du)
        if wanted[1] or wanted[2]:
            d_inputs[1:3] = reduce_transform(call, saved[1], right)
        if call.gain is not None and wanted[4]:
            d_inputs[4] = slopes.sum().to(call.gain.dtype).view_as(call.gain)
        pairs = zip(d_inputs, wanted, strict=True)
        return tuple(g if want else None for g, want in pairs)
