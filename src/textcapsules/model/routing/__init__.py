"""Dynamic routing: `route` for one set of children, `route_windows` for layers.

`reference` is the definition, `chunked` saves memory where every child has a transform
of its own, and `model.kernels` has compiled versions; all are tested against the
definition. This is the only place that chooses between them: it checks the shapes,
picks a backend, and logs when it has to fall back. `attention` is another way to route.
"""

import importlib.util
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from types import ModuleType

import torch
from torch import Tensor

from textcapsules.model.functional import GPU_SQUASHES, SQUASHES, check_squash, squash
from textcapsules.model.routing.attention import Attended, attend
from textcapsules.model.routing.chunked import route_in_chunks
from textcapsules.model.routing.reference import (
    Routed,
    RoutingOptions,
    route_with_votes,
    route_without_votes,
)

__all__ = [
    "BACKENDS",
    "Attended",
    "Routed",
    "RoutingOptions",
    "attend",
    "check_options",
    "expect_texts",
    "has_triton",
    "pick_backend",
    "route",
    "route_windows",
    "squash_capsules",
]

BACKENDS = ("votes", "vote-free", "chunked", "cpu", "gpu")
NORMALISERS = ("none", "total")
# Children times parents of a batch, up to which plain code predicts on a CPU: a few
# short texts take it as long as the kernel, which a new process would load first.
FEW_COUPLINGS = 1 << 16
# Texts of one call from which a kernel is worth loading, however small the batches.
MANY_TEXTS = 500
# Norms between these have squares that float32 holds with all digits.
SMALL_NORM, LARGE_NORM = 1e-15, 1e9

log = logging.getLogger(__name__)
_expects_many: ContextVar[bool] = ContextVar("expects_many", default=False)


@contextmanager
def expect_texts(n_texts: int) -> Iterator[None]:
    """Say how many texts the block will route in all its batches.

    The choice of code depends on this number and on shapes alone, never on what a
    process has loaded before: so a call gives the same bits every time.
    """
    token = _expects_many.set(n_texts >= MANY_TEXTS)
    try:
        yield
    finally:
        _expects_many.reset(token)


def route(
    children: Tensor,
    transform: Tensor,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    options: RoutingOptions = RoutingOptions(),
    *,
    gain: Tensor | None = None,
    backend: str = "auto",
) -> Routed:
    """Route I child capsules to J parent capsules by agreement (Zhao et al., 2018).

    Every child votes for every parent through a linear map. A parent is the squashed
    sum of its votes, weighted by the couplings; the couplings of a child then move to
    the parents that agree with its vote. The B texts of a batch do not affect each
    other. Children, transform, bias and gain get gradients.

    Args:
        children: (B, I, D), the poses of the layer below.
        transform: (J, D, H), the linear maps, shared by all children; or
            (I, J, D, H), with maps of their own for every child.
        bias: (J, H), added to the votes, or (I, J, H) to match; default: none.
        mask: (B, I), False where a child is padding and must not vote; default: all
            vote.
        options: how to route; default: as in the paper.
        gain: one number, which the children's normalised weights sum to; only with
            `options.normalise="total"`; default: 1.
        backend: which code computes it, see `pick_backend`; default: the fastest that
            can.

    Returns:
        Poses (B, J, H), their lengths (B, J), and the couplings (B, I, J) that made
        them.

    >>> children = torch.tensor([[[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]]])  # (1, 3, 2)
    >>> transform = torch.stack([2 * torch.eye(2), -torch.eye(2)])  # (2, 2, 2)
    >>> routed = route(children, transform)
    >>> routed.poses.shape, routed.couplings.shape
    (torch.Size([1, 2, 2]), torch.Size([1, 3, 2]))
    >>> bool(routed.lengths[0, 0] > routed.lengths[0, 1])
    True
    """
    if children.ndim != 3:
        raise ValueError(f"children must be (B, I, D); got {tuple(children.shape)}.")
    if mask is None:
        mask = torch.ones(children.shape[:2], dtype=torch.bool, device=children.device)
    if mask.shape != children.shape[:2]:
        expected = tuple(children.shape[:2])
        raise ValueError(f"mask must be {expected}; got {tuple(mask.shape)}.")
    routed = route_windows(
        children.unsqueeze(2),
        transform,
        bias,
        mask.unsqueeze(1),
        options,
        gain=gain,
        backend=backend,
    )
    return Routed(*(output.squeeze(1) for output in routed))  # type: ignore[union-attr]


def route_windows(
    capsules: Tensor,
    transform: Tensor,
    bias: Tensor | None,
    mask: Tensor,
    options: RoutingOptions = RoutingOptions(),
    *,
    gain: Tensor | None = None,
    couplings: bool = True,
    backend: str = "auto",
    precision: str = "ieee",
) -> Routed:
    """Route the capsules of every window of K positions to J parents of its own.

    Both routed layers call this: the convolutional one with a short window, the fully
    connected one with a single window over the whole text.

    Args:
        capsules: (B, P, C, D), C capsules at each of P positions.
        transform: W, shared (J, D, H) or one per child (K·C, J, D, H), children
            ordered by position, then type.
        bias: β to match, or None.
        mask: (B, W, K) with W = P - K + 1, False where a window's position must not
            vote.
        options: as for `route`.
        gain: as for `route`; every window's weights sum to it.
        couplings: whether to return them; if not, a kernel returns None.
        backend: see `pick_backend`.
        precision: how the GPU kernels form products, one of
            `kernels.gpu.route.PRECISIONS`; the others take full float32 numbers.

    Returns:
        Poses (B, W, J, H), lengths (B, W, J) and couplings (B, W, K·C, J) or None.
    """
    _check_shapes(capsules, transform, bias, mask)
    check_options(options)
    _check_gain(options, gain)
    backend = pick_backend(backend, capsules, transform, bias, options)
    inputs = (capsules, transform, bias, mask, options, gain)
    if backend == "gpu":
        kernel = _kernels(backend).route_windows_gpu
        return kernel(*inputs, couplings=couplings, precision=precision)
    if backend == "cpu":
        return _kernels(backend).route_windows_cpu(*inputs, couplings=couplings)
    (B, W, K), (_, _, C, D) = mask.shape, capsules.shape
    windows = capsules.unfold(1, K, 1).permute(0, 1, 4, 2, 3)  # (B, W, K, C, D)
    children = windows.reshape(B * W, K * C, D)
    child_mask = mask.unsqueeze(-1).expand(-1, -1, -1, C).reshape(B * W, K * C)
    plain = {"votes": route_with_votes, "chunked": route_in_chunks}
    routed = plain.get(backend, route_without_votes)(
        children, transform, bias, child_mask, options, gain
    )
    return Routed(*(output.unflatten(0, (B, W)) for output in routed))  # type: ignore[union-attr]


def squash_capsules(poses: Tensor, kind: str) -> Tensor:
    """Squash poses (..., D), by one kernel on a GPU with Triton."""
    if poses.device.type == "cpu" and kind in SQUASHES:
        return squash_cpu(poses, kind)
    if not (poses.is_cuda and kind in GPU_SQUASHES and poses.numel()):
        return squash(poses, kind)
    if poses.dtype not in (torch.float32, torch.bfloat16) or not has_triton():
        return squash(poses, kind)
    from textcapsules.model.kernels.gpu.capsules import squash_gpu

    return squash_gpu(poses, kind)


def squash_cpu(poses: Tensor, kind: str) -> Tensor:
    """Squash poses (..., D) of usual norms with fewer passes over them than `squash`.

    The norm is that of the poses as they are, which needs squares within the range of
    float32; poses of other norms, or none at all, are left to the definition.
    """
    norm = torch.linalg.vector_norm(poses, dim=-1, keepdim=True)  # (..., 1)
    sizes = norm.detach()
    usual = bool((sizes < LARGE_NORM).all())  # NaN is not
    small = sizes < SMALL_NORM
    if usual and small.any():  # zeros are usual: padding has such poses
        usual = not poses.detach().masked_select(small).any()
    if not usual:
        return squash(poses, kind)
    floor = torch.finfo(poses.dtype).tiny
    return SQUASHES[kind](norm) / norm.clamp(min=floor) * poses


def has_triton() -> bool:
    """Return whether Triton is installed, as it is with torch for CUDA."""
    return importlib.util.find_spec("triton") is not None


def pick_backend(
    asked: str,
    capsules: Tensor,
    transform: Tensor,
    bias: Tensor | None = None,
    options: RoutingOptions = RoutingOptions(),
) -> str:
    """Return the name of the code that routes some tensors.

    `votes` forms every vote, as the paper writes it; `chunked` forms some at a time.
    `vote-free` forms none and needs a shared transform. `cpu` and `gpu` are compiled
    versions of `vote-free`. `auto` takes the one for the tensors' device, or plain code
    where that cannot route them, or where a CPU has so little to route, and no gradient
    to keep, that loading a kernel would take longer (see `expect_texts`): `vote-free`
    if the transform is shared, else `chunked`.
    """
    if asked not in ("auto", *BACKENDS):
        names = ", ".join(["auto", *BACKENDS])
        raise ValueError(f"backend must be one of {names}; got {asked!r}.")
    shared = transform.ndim == 3
    if asked == "vote-free" and not shared:
        raise ValueError(
            f"transform must be shared, (J, D, H), for backend 'vote-free'; got shape "
            f"{tuple(transform.shape)}. Use backend='votes'."
        )
    if asked in ("votes", "vote-free", "chunked"):
        return asked
    if asked == "auto" and shared and is_little(capsules, transform, bias):
        return "vote-free"
    kernel = asked if asked != "auto" else "gpu" if capsules.is_cuda else "cpu"
    reason = _kernels(kernel).supports(capsules, transform, bias, options)
    if reason is None:
        return kernel
    if asked != "auto":
        raise ValueError(f"backend {asked!r} must be able to route this; {reason}.")
    fallback = "vote-free" if shared else "chunked"
    _log_once(f"routing falls back to plain code ({fallback}): {reason}")
    return fallback


def is_little(capsules: Tensor, transform: Tensor, bias: Tensor | None) -> bool:
    """Return whether a CPU has a few short texts to route, and no gradient to keep."""
    if _expects_many.get():
        return False
    tensors = [t for t in (capsules, transform, bias) if t is not None]
    if not all(t.device.type == "cpu" for t in tensors):
        return False
    if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
        return False
    return capsules.shape[:3].numel() * transform.shape[0] <= FEW_COUPLINGS


def _kernels(name: str) -> ModuleType:
    """Import the module of a kernel; its compiler may be missing."""
    if name == "gpu":
        from textcapsules.model.kernels.gpu import route as gpu

        return gpu
    from textcapsules.model.kernels.cpu import route as cpu

    return cpu


@lru_cache(maxsize=64)
def _log_once(message: str) -> None:
    log.info(message)


def check_options(options: RoutingOptions) -> None:
    """Refuse options that routing cannot follow."""
    if options.iterations < 1:
        raise ValueError(f"iterations must be at least 1; got {options.iterations}.")
    if options.normalise not in NORMALISERS:
        names = " or ".join(NORMALISERS)
        raise ValueError(f"normalise must be {names}; got {options.normalise!r}.")
    check_squash(options.squash)


def _check_gain(options: RoutingOptions, gain: Tensor | None) -> None:
    """Refuse a gain that the options do not ask for, or several."""
    if gain is None:
        return
    if options.normalise == "none":
        raise ValueError("gain must be None where nothing is normalised; got a number.")
    if gain.numel() != 1:
        raise ValueError(f"gain must be one number; got shape {tuple(gain.shape)}.")


def _check_shapes(
    capsules: Tensor, transform: Tensor, bias: Tensor | None, mask: Tensor
) -> None:
    """Refuse shapes that do not fit, naming the tensor."""
    B, P, C, D = capsules.shape
    if mask.ndim != 3 or mask.shape[:2] != (B, P - mask.shape[-1] + 1):
        raise ValueError(
            f"mask must be ({B}, {P} - K + 1, K); got {tuple(mask.shape)}."
        )
    n_children = mask.shape[2] * C
    lead = (n_children,) if transform.ndim == 4 else ()
    if transform.ndim not in (3, 4) or transform.shape[:-3] != lead:
        raise ValueError(
            f"transform must be (J, {D}, H) or ({n_children}, J, {D}, H); "
            f"got {tuple(transform.shape)}."
        )
    J, child_size, H = transform.shape[-3:]
    if child_size != D:
        raise ValueError(
            f"transform must take poses of size {D}; got {tuple(transform.shape)}."
        )
    if bias is not None and bias.shape != (*lead, J, H):
        raise ValueError(
            f"bias must be {(*lead, J, H)} to match the transform; "
            f"got {tuple(bias.shape)}."
        )
