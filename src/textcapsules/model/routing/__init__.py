"""Dynamic routing: `route`, and `route_windows` for the layers of a network.

`reference` holds the definition. `route` checks the shapes once and picks a backend;
this is the only dispatch in the package, and kernels register here.
"""

from collections.abc import Callable

from torch import Tensor

from textcapsules.model.routing.reference import (
    Routed,
    RoutingOptions,
    route_with_votes,
    route_without_votes,
)

__all__ = ["BACKENDS", "Routed", "RoutingOptions", "route", "route_windows"]

# name -> a function of (children, transform, bias, mask, options)
BACKENDS: dict[str, Callable[..., Routed]] = {
    "votes": route_with_votes,
    "vote-free": route_without_votes,
}


def route(
    children: Tensor,
    transform: Tensor,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    options: RoutingOptions = RoutingOptions(),
    *,
    backend: str = "auto",
) -> Routed:
    """Route children (B, I, D) to J parents by agreement.

    Args:
        children: u, poses of the layer below, (B, I, D).
        transform: W, shared (J, D, H) or one a child (I, J, D, H).
        bias: β, (J, H) or (I, J, H) to match, or None.
        mask: (B, I), False where a child is padding and must not vote, or None.
        options: iterations, leaky softmax, amendment, squash.
        backend: `votes` forms every vote (the definition); `vote-free` never does and
            needs a shared transform; `auto` takes `vote-free` where it can.
    """
    _check_shapes(children, transform, bias, mask)
    if options.iterations < 1:
        raise ValueError(f"iterations must be at least 1; got {options.iterations}.")
    shared = transform.ndim == 3
    if backend == "auto":
        backend = "vote-free" if shared else "votes"
    if backend not in BACKENDS:
        names = ", ".join(["auto", *BACKENDS])
        raise ValueError(f"backend must be one of {names}; got {backend!r}.")
    if backend == "vote-free" and not shared:
        raise ValueError(
            f"transform must be shared, (J, D, H), for backend 'vote-free'; got shape "
            f"{tuple(transform.shape)}. Use backend='votes'."
        )
    return BACKENDS[backend](children, transform, bias, mask, options)


def route_windows(
    capsules: Tensor,
    transform: Tensor,
    bias: Tensor | None,
    mask: Tensor,
    options: RoutingOptions = RoutingOptions(),
    *,
    backend: str = "auto",
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
        backend: as for `route`.

    Returns:
        Poses (B, W, J, H), lengths (B, W, J) and couplings (B, W, K·C, J).
    """
    B, P, C, D = capsules.shape
    if mask.ndim != 3 or mask.shape[:2] != (B, P - mask.shape[-1] + 1):
        raise ValueError(
            f"mask must be ({B}, {P} - K + 1, K); got {tuple(mask.shape)}."
        )
    _, W, K = mask.shape
    windows = capsules.unfold(1, K, 1).permute(0, 1, 4, 2, 3)  # (B, W, K, C, D)
    children = windows.reshape(B * W, K * C, D)
    child_mask = mask.unsqueeze(-1).expand(-1, -1, -1, C).reshape(B * W, K * C)
    routed = route(children, transform, bias, child_mask, options, backend=backend)
    return Routed(*(found.unflatten(0, (B, W)) for found in routed))


def _check_shapes(
    children: Tensor, transform: Tensor, bias: Tensor | None, mask: Tensor | None
) -> None:
    """Name the tensor whose shape does not fit the others."""
    if children.ndim != 3:
        raise ValueError(f"children must be (B, I, D); got {tuple(children.shape)}.")
    B, I, D = children.shape  # noqa: E741
    lead = (I,) if transform.ndim == 4 else ()
    if transform.ndim not in (3, 4) or transform.shape[:-3] != lead:
        raise ValueError(
            f"transform must be (J, {D}, H) or ({I}, J, {D}, H); "
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
    if mask is not None and mask.shape != (B, I):
        raise ValueError(f"mask must be ({B}, {I}); got {tuple(mask.shape)}.")
