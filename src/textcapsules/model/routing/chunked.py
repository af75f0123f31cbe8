"""Routing with one transform per child, without holding all votes.

Routing without votes needs a shared transform. Here votes are formed for some windows
at a time, and formed again in the backward pass, so that memory is bounded by one chunk
of them, for any batch size.
"""

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from textcapsules.model.routing.reference import (
    Routed,
    RoutingOptions,
    route_with_votes,
)

__all__ = ["route_in_chunks"]

# Bytes of votes formed at a time; a single window may need more. A GPU has room for
# more, and is idle between small chunks.
CHUNK_BYTES = {"cpu": 2**25, "cuda": 2**28}


def route_in_chunks(
    children: Tensor,
    transform: Tensor,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    options: RoutingOptions = RoutingOptions(),
    gain: Tensor | None = None,
) -> Routed:
    """Route as `reference.route_with_votes` does, some rows of the batch at a time."""
    (B, I, _), (J, H) = children.shape, (transform.shape[-3], transform.shape[-1])  # noqa: E741
    row_bytes = max(1, I * J * H * children.element_size())
    chunk = CHUNK_BYTES["cuda" if children.is_cuda else "cpu"]
    rows = max(1, chunk // row_bytes)
    if rows >= B:  # all fit in one chunk: forming them twice would save nothing
        return route_with_votes(children, transform, bias, mask, options, gain)
    parts = [
        checkpoint(
            route_with_votes,
            children[start : start + rows],
            transform,
            bias,
            None if mask is None else mask[start : start + rows],
            options,
            gain,
            use_reentrant=False,
            preserve_rng_state=False,
        )
        for start in range(0, B, rows)
    ]
    return Routed(*map(torch.cat, zip(*parts, strict=True)))  # type: ignore[arg-type]
