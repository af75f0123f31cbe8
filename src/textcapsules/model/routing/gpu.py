"""Fused routing on a GPU: `route_windows_gpu`, the same contract as `route_windows`.

Two sets of Triton kernels, one maths (`gpu_conv` tells it). A short window is routed by
one program, all iterations on chip (`gpu_conv`); a long one, or one with many parents,
is cut into chunks of children and tiles of parents (`gpu_class`). Neither forms votes
or keeps logits; both recompute in the backward pass and add in a fixed order, so that
the same inputs give the same bits. Triton is imported at the first use.
"""

from __future__ import annotations

import importlib.util
import os
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from textcapsules.model.functional import SQUASHES
from textcapsules.model.routing.reference import Routed, RoutingOptions

__all__ = ["PRECISIONS", "route_windows_gpu", "supports"]

# How products of float32 are formed: exactly, by tensor cores on numbers rounded to 10
# bits, or by tensor cores on three such parts.
PRECISIONS = ("ieee", "tf32", "tf32x3")

_LARGEST_POSE = 64
# A program holds the whole transform, and a window's children pass through it one tile
# after the other: beyond these sizes chunks in parallel are faster.
_SHORT_WINDOW = 512
_HELD_TRANSFORM = 16384


class Sizes(NamedTuple):
    """The axes of one call; letters as in `functional`, W windows of K positions."""

    B: int
    P: int
    C: int
    D: int
    W: int
    K: int
    J: int
    H: int

    @property
    def windows(self) -> int:
        """N, windows of the whole batch."""
        return self.B * self.W

    @property
    def children(self) -> int:
        """I, children of one window."""
        return self.K * self.C

    def tiles(self) -> dict[str, int]:
        """Return the powers of two that hold J, D and H; a product needs 16 or more."""
        names = {"BJ": self.J, "BD": self.D, "BH": self.H}
        return {name: max(16, power_of_two(size)) for name, size in names.items()}


class Call(NamedTuple):
    """What forward and backward launches of one call have in common."""

    capsules: Tensor
    transform: Tensor
    bias: Tensor | None
    mask: Tensor
    sizes: Sizes
    options: RoutingOptions
    precision: str

    def inputs(self) -> tuple[Tensor, ...]:
        """Return the four tensors; a missing bias is never read."""
        bias = self.transform if self.bias is None else self.bias
        return self.capsules, self.transform, bias, self.mask

    def axes(self) -> tuple[int, ...]:
        """Return P, W, C, I and the mask's strides, as every kernel takes them."""
        z = self.sizes
        return z.P, z.W, z.C, z.children, *self.mask.stride()

    def constants(self) -> dict[str, int | bool | str]:
        """Return what kernels are compiled for."""
        z, o = self.sizes, self.options
        return {
            "J": z.J, "D": z.D, "H": z.H, "R": o.iterations, "LEAKY": o.leaky,
            "AMENDMENT": o.amendment, "SQUASH": o.squash, "BIAS": self.bias is not None,
            "PRECISION": self.precision,
        }  # fmt: skip


class Gradients(NamedTuple):
    """Gradients of the outputs; None where nothing downstream read them."""

    poses: Tensor | None
    lengths: Tensor | None
    couplings: Tensor | None

    def pointers(self, other: Tensor) -> tuple[Tensor, ...]:
        """Return all three, `other` in place of None: it is never read."""
        return tuple(other if g is None else g.contiguous() for g in self)

    def constants(self) -> dict[str, bool]:
        """Return which of them are there."""
        names = ("DPOSE", "DLENGTH", "DCOUPLING")
        return {name: g is not None for name, g in zip(names, self, strict=True)}


def power_of_two(size: int) -> int:
    """Return the smallest power of two that is not below `size`."""
    return 1 << max(size - 1, 0).bit_length()


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
    if options.squash not in (*SQUASHES, "none"):
        return f"the squash {options.squash!r} has no kernel"
    return None


def route_windows_gpu(
    capsules: Tensor,
    transform: Tensor,
    bias: Tensor | None,
    mask: Tensor,
    options: RoutingOptions = RoutingOptions(),
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
        options: iterations, leaky softmax, amendment, squash.
        couplings: whether to return them; else they are never stored, and None.
        precision: how float32 products are formed, one of `PRECISIONS`.
        regime: `window` or `chunks` of children; `auto` picks by size.

    Returns:
        Poses (B, W, J, H), lengths (B, W, J) and couplings (B, W, K·C, J) or None.
    """
    if reason := supports(capsules, transform, bias, options):
        raise ValueError(f"the GPU kernels cannot route this: {reason}.")
    if precision not in PRECISIONS:
        names = ", ".join(PRECISIONS)
        raise ValueError(f"precision must be one of {names}; got {precision!r}.")
    B, P, C, D = capsules.shape
    J, _, H = transform.shape
    sizes = Sizes(B, P, C, D, *mask.shape[1:], J, H)
    if regime == "auto":
        tiles = sizes.tiles()
        held = tiles["BJ"] * tiles["BD"] * tiles["BH"] <= _HELD_TRANSFORM
        short = sizes.children <= _SHORT_WINDOW
        regime = "window" if short and held else "chunks"
    call = Call(
        capsules.contiguous(),
        transform.contiguous(),
        None if bias is None else bias.contiguous(),
        mask.view(torch.uint8),
        sizes,
        options,
        precision,
    )
    poses, lengths, found = _Route.apply(*call, couplings, regime)
    lead = (B, sizes.W)
    return Routed(
        poses.unflatten(0, lead),
        lengths.unflatten(0, lead),
        found if found is None else found.unflatten(0, lead),  # type: ignore[arg-type]
    )


class _Route(torch.autograd.Function):
    """The kernels of one regime, and the reductions after the backward pass."""

    @staticmethod
    def forward(ctx, *arguments):
        *fields, couplings, regime = arguments
        call = Call(*fields)
        save = any(ctx.needs_input_grad)
        forward = _regime(regime)[0]
        poses, lengths, found, sums, pulls = forward(call, couplings, save)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*call[:4], sums, pulls)
        ctx.rest = call[4:]
        ctx.regime = regime
        return poses, lengths, found

    @staticmethod
    @once_differentiable
    def backward(ctx, *gradients):
        *tensors, sums, pulls = ctx.saved_tensors
        call = Call(*tensors, *ctx.rest)
        missing = (None,) * (len(Call._fields) - 3 + 2)
        if all(g is None for g in gradients):
            return None, None, None, *missing
        backward = _regime(ctx.regime)[1]
        du, right = backward(call, Gradients(*gradients), sums, pulls)
        wants = ctx.needs_input_grad
        dcapsules = _fold(call, du) if wants[0] else None
        dtransform = dbias = None
        if wants[1] or wants[2]:
            dtransform, dbias = _transform_gradient(call, sums, right)
        return dcapsules, dtransform, dbias if wants[2] else None, *missing


def _regime(name: str):
    """Return the forward and backward launches of a regime."""
    if name == "window":
        return _window_forward, _window_backward
    from textcapsules.model.routing import gpu_class

    return gpu_class.forward, gpu_class.backward


def new_outputs(call: Call, couplings: bool, save: bool) -> tuple[Tensor | None, ...]:
    """Return memory for poses, lengths, couplings, and the saved states."""
    z, R = call.sizes, call.options.iterations
    N = z.windows
    poses = call.capsules.new_empty(N, z.J, z.H)
    lengths = call.capsules.new_empty(N, z.J)
    found = call.capsules.new_empty(N, z.children, z.J) if couplings else None
    floats = {"dtype": torch.float32, "device": poses.device}
    state = z.J * (z.D + 1)
    sums = torch.empty(N, 2 * R - 1, state, **floats) if save else None
    pulls = torch.empty(N, R - 1, state, **floats) if save else None
    return poses, lengths, found, sums, pulls


def _window_launch(call: Call) -> dict[str, int]:
    """Return the tile of children and the warps for the kernels of one window."""
    tile = min(128, max(16, power_of_two(call.sizes.children)))
    return {"BI": tile, "num_warps": 4, **call.sizes.tiles()}


def _window_forward(call: Call, couplings: bool, save: bool):
    from textcapsules.model.routing.gpu_conv import route_window

    outputs = new_outputs(call, couplings, save)
    pointers = (outputs[0] if t is None else t for t in outputs)
    route_window[(call.sizes.windows,)](
        *call.inputs(), *pointers, *call.axes(), **call.constants(),
        COUPLINGS=couplings, SAVE=save, **_window_launch(call),
    )  # fmt: skip
    return outputs


def _window_backward(call: Call, gradients: Gradients, sums: Tensor, pulls: Tensor):
    from textcapsules.model.routing.gpu_conv import route_window_backward

    z = call.sizes
    right = torch.empty(*sums.shape[:2], z.J, z.H, device=sums.device)
    du = torch.empty(z.windows, z.children, z.D, device=sums.device)
    route_window_backward[(z.windows,)](
        *call.inputs(), *gradients.pointers(sums), sums, pulls, right, du,
        *call.axes(), **call.constants(), **gradients.constants(),
        **_window_launch(call),
    )  # fmt: skip
    return du, right


def _fold(call: Call, du: Tensor) -> Tensor:
    """Return the capsules' gradient from that of every window's children."""
    from textcapsules.model.routing.gpu_conv import fold_windows

    z = call.sizes
    if z.W == 1:
        return du.view_as(call.capsules).to(call.capsules.dtype)
    out = torch.empty_like(call.capsules)
    size = z.C * z.D
    block = min(1024, power_of_two(size))
    grid = (z.B * z.P, -(-size // block))
    fold_windows[grid](du, out, z.P, z.W, z.K, size, BLOCK=block)
    return out


def _transform_gradient(call: Call, left: Tensor, right: Tensor):
    """Return dW and dβ: what the iterations of all windows add up to."""
    from textcapsules.model.routing.gpu_conv import transform_gradient

    z = call.sizes
    rows = left.shape[0] * left.shape[1]
    # Enough programs to fill a GPU, each with some tiles of rows to add up.
    parts = max(1, min(-(-rows // 64), 512 // z.J))
    each = -(-rows // parts)
    tiles = call.sizes.tiles()
    out = torch.empty(parts, z.J * (z.D + 1) * z.H, device=left.device)
    transform_gradient[(z.J, parts)](
        left, right, out, rows, each, J=z.J, D=z.D, H=z.H, PRECISION=call.precision,
        BR=64, BD=tiles["BD"], BH=tiles["BH"],
    )  # fmt: skip
    total = (out.sum(0) if parts > 1 else out[0]).to(call.transform.dtype)
    dtransform, dbias = total.split([z.J * z.D * z.H, z.J * z.H])
    if call.bias is None:
        return dtransform.view_as(call.transform), None
    return dtransform.view_as(call.transform), dbias.view_as(call.bias)
