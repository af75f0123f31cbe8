"""Dynamic routing: `route_windows` for the layers of a network, `route` for one set.

`reference` holds the definition; `chunked` spares memory where every child has its own
transform; `cpu` and `gpu` are compiled kernels, all tested against the definition. This
is the only dispatch in the package: it checks the shapes once, picks a backend, and
says in the log when it has to fall back. `attention` is another way to route.
"""

import importlib.util
import logging
from functools import lru_cache
from types import ModuleType

import torch
from torch import Tensor

from textcapsules.model.functional import SQUASHES, squash
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
    "has_triton",
    "pick_backend",
    "route",
    "route_windows",
    "squash_capsules",
]

BACKENDS = ("votes", "vote-free", "chunked", "cpu", "gpu")
NORMALISERS = ("none", "total")

log = logging.getLogger(__name__)


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
    """Route children (B, I, D) to J parents by agreement.

    Args:
        children: u, poses of the layer below, (B, I, D).
        transform: W, shared (J, D, H) or one a child (I, J, D, H).
        bias: β, (J, H) or (I, J, H) to match, or None.
        mask: (B, I), False where a child is padding and must not vote, or None.
        options: iterations, leaky softmax, amendment, squash, normalisation.
        gain: what normalised weights of the children sum to, a number; None: 1.
        backend: see `pick_backend`.

    Returns:
        Poses (B, J, H), lengths (B, J) and couplings (B, I, J).
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
    return Routed(*(found.squeeze(1) for found in routed))  # type: ignore[union-attr]


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

    Both routed layers are this: the convolutional one with a short window, the fully
    connected one with a single window over the whole text.

    Args:
        capsules: (B, P, C, D), C capsules at each of P positions.
        transform: W, shared (J, D, H) or one a child (K·C, J, D, H), children ordered
            by position, then type.
        bias: β to match, or None.
        mask: (B, W, K) with W = P - K + 1, False where a window's position must not
            vote.
        options: as for `route`.
        gain: as for `route`; every window's weights sum to it.
        couplings: whether they are wanted; a kernel leaves them None where not.
        backend: see `pick_backend`.
        precision: how the GPU's kernels form products, one of `gpu.PRECISIONS`; the
            others always take whole float32 numbers.

    Returns:
        Poses (B, W, J, H), lengths (B, W, J) and couplings (B, W, K·C, J) or None.
    """
    _check_shapes(capsules, transform, bias, mask)
    _check_options(options, gain)
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
    return Routed(*(found.unflatten(0, (B, W)) for found in routed))  # type: ignore[union-attr]


def squash_capsules(poses: Tensor, kind: str) -> Tensor:
    """Squash poses (..., D), in one kernel where they lie on a GPU that has it."""
    if not (poses.is_cuda and kind in SQUASHES and poses.numel()):
        return squash(poses, kind)
    if poses.dtype not in (torch.float32, torch.bfloat16) or not has_triton():
        return squash(poses, kind)
    from textcapsules.model.kernels.gpu.capsules import squash_gpu

    return squash_gpu(poses, kind)


def has_triton() -> bool:
    """Tell whether Triton is installed, as it is with torch for CUDA."""
    return importlib.util.find_spec("triton") is not None


def pick_backend(
    asked: str,
    capsules: Tensor,
    transform: Tensor,
    bias: Tensor | None = None,
    options: RoutingOptions = RoutingOptions(),
) -> str:
    """Return the backend for some tensors.

    `votes` forms every vote, as the paper writes it, `chunked` some at a time.
    `vote-free` never does and needs a shared transform. `cpu` and `gpu` are compiled
    kernels of the latter. `auto` takes the kernel of the tensors' device, or the best
    plain code where it has none.
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
    kernel = asked if asked != "auto" else "gpu" if capsules.is_cuda else "cpu"
    reason = _kernels(kernel).supports(capsules, transform, bias, options)
    if reason is None:
        return kernel
    if asked != "auto":
        raise ValueError(f"backend {asked!r} must be able to route this; {reason}.")
    fallback = "vote-free" if shared else "chunked"
    _say_once(f"routing falls back to plain code ({fallback}): {reason}")
    return fallback


def _kernels(name: str) -> ModuleType:
    """Import the module of a kernel, whose compiler may not be installed."""
    if name == "gpu":
        from textcapsules.model.kernels.gpu import route as gpu

        return gpu
    from textcapsules.model.kernels.cpu import route as cpu

    return cpu


@lru_cache(maxsize=64)
def _say_once(message: str) -> None:
    log.info(message)


def _check_options(options: RoutingOptions, gain: Tensor | None) -> None:
    """Refuse what cannot be routed by."""
    if options.iterations < 1:
        raise ValueError(f"iterations must be at least 1; got {options.iterations}.")
    if options.normalise not in NORMALISERS:
        names = " or ".join(NORMALISERS)
        raise ValueError(f"normalise must be {names}; got {options.normalise!r}.")
    if gain is None:
        return
    if options.normalise == "none":
        raise ValueError("gain must be None where nothing is normalised; got a number.")
    if gain.numel() != 1:
        raise ValueError(f"gain must be one number; got shape {tuple(gain.shape)}.")


def _check_shapes(
    capsules: Tensor, transform: Tensor, bias: Tensor | None, mask: Tensor
) -> None:
    """Name the tensor whose shape does not fit the others."""
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
