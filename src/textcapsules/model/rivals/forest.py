"""The order in which a batch of trees is computed: one height after the other.

First come the leaves of all trees, then the nodes that have only leaves below them, and
so on; nodes of one height are computed together. A node whose parent is padding or
outside the document (cut off), and every node on a cycle, counts as a root.
"""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["Forest", "plan_forest"]


class Forest(NamedTuple):
    """N nodes in the order of their heights, and the arcs from children to parents.

    Arcs come in the order of the parents. A node is named by its rank in `nodes`.
    """

    nodes: Tensor  # (N,) place in the flattened batch
    roots: Tensor  # (R,) ranks
    children: Tensor  # (A,) ranks
    parents: Tensor  # (A,) ranks
    node_bounds: list[int]  # where each height's nodes end
    arc_bounds: list[int]  # where the arcs to each height's nodes end


def plan_forest(offsets: Tensor, mask: Tensor) -> Forest:
    """Order the nodes (B, T) of a batch so that children precede their parents."""
    inside = mask.cpu().numpy()
    parent = _parents(offsets.cpu().numpy(), inside)  # (B * T,)
    height = _heights(parent, inside.ravel())
    nodes = np.argsort(height, kind="stable")[np.count_nonzero(height < 0) :]  # (N,)
    rank = np.empty(len(height), np.int64)
    rank[nodes] = np.arange(len(nodes))
    is_child = parent[nodes] >= 0
    children = np.flatnonzero(is_child)
    parents = rank[parent[nodes[children]]]
    by_parent = np.argsort(parents, kind="stable")
    n_nodes = np.bincount(height[nodes])
    n_arcs = np.bincount(height[nodes[parents]], minlength=len(n_nodes))

    def on_device(numbers: NDArray) -> Tensor:
        return torch.from_numpy(numbers).to(mask.device)

    return Forest(
        nodes=on_device(nodes),
        roots=on_device(np.flatnonzero(~is_child)),
        children=on_device(children[by_parent]),
        parents=on_device(parents[by_parent]),
        node_bounds=np.cumsum(n_nodes).tolist(),
        arc_bounds=np.cumsum(n_arcs).tolist(),
    )


def _parents(offsets: NDArray, inside: NDArray) -> NDArray:
    """Return every node's parent in the flattened batch, -1 for roots and padding."""
    n_rows, n_tokens = offsets.shape
    place = np.arange(n_tokens) + offsets  # (B, T)
    there = inside & (offsets != 0) & (place >= 0) & (place < n_tokens)
    flat = np.where(there, place + n_tokens * np.arange(n_rows)[:, None], 0).ravel()
    return np.where(there.ravel() & inside.ravel()[flat], flat, -1)


def _heights(parent: NDArray, inside: NDArray) -> NDArray:
    """Return every node's height, -1 for padding; cut cycles apart, in `parent`."""
    height = np.full(len(parent), -1)
    waiting = np.bincount(parent[parent >= 0], minlength=len(parent))  # children left
    ready, level = np.flatnonzero(inside & (waiting == 0)), 0
    while len(ready):
        height[ready] = level
        above = parent[ready]
        above = above[above >= 0]
        np.subtract.at(waiting, above, 1)
        above = np.unique(above)
        ready, level = above[waiting[above] == 0], level + 1
    in_cycle = inside & (height < 0)
    if in_cycle.any():
        parent[in_cycle] = -1
        return _heights(parent, inside)
    return height
