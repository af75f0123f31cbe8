"""Dynamic routing: one function, `route`, in front of every way to compute it.

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

__all__ = ["BACKENDS", "Routed", "RoutingOptions", "route"]

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
