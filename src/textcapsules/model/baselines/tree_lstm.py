"""Tree-LSTMs (Tai, Socher, Manning 2015): an LSTM whose memory follows a parse tree.

A document is a row of nodes, (T, F) numbers: the word's id (0: no word), the parent's
place relative to the node (0: a root), and for binary trees which child the node is (0
left, 1 right) and, if known, its label (0: none, else 1 + class). Offsets are relative,
so documents put end to end are a forest. The class is read from the mean of the roots'
states: the number of a document's sentences does not change the scale.

A batch of trees is computed one height after the other: first the leaves of all trees,
then the nodes that have only leaves below them, and so on; nodes of one height are
computed together. A node whose parent is padding or outside the document (cut off), and
every node on a cycle, counts as a root.
"""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from textcapsules.model.network import ClassOutput, Network

__all__ = ["ChildSumTreeLstm", "Forest", "NaryTreeLstm", "plan_forest"]


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
    has_parent = inside & (offsets != 0) & (place >= 0) & (place < n_tokens)
    flat = np.where(
        has_parent, place + n_tokens * np.arange(n_rows)[:, None], 0
    ).ravel()
    return np.where(has_parent.ravel() & inside.ravel()[flat], flat, -1)


def _heights(parent: NDArray, inside: NDArray) -> NDArray:
    """Return every node's height, -1 for padding; a cycle's nodes lose their parent."""
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


class ChildSumCell(nn.Module):
    """The child-sum cell: any number of children, in no order."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.W = nn.Linear(input_size, 4 * hidden_size)  # of i, o, u and f
        self.U = nn.Linear(hidden_size, 3 * hidden_size, bias=False)  # of i, o, u
        self.U_f = nn.Linear(hidden_size, hidden_size, bias=False)

    def forward(
        self, Wx: Tensor, h: Tensor, c: Tensor, parents: Tensor, columns: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the parents' i, o, u before sigmoid and tanh, and the memory kept.

        Args:
            Wx: (n, 4H), from the parents' words.
            h: (A, H), states of the children.
            c: (A, H), memories of the children.
            parents: (A,), which of the n each child belongs to.
            columns: (A, F), what the document says of each child; not needed here.
        """
        del columns
        H = h.shape[1]
        h_sum = Wx.new_zeros(len(Wx), H).index_add(0, parents, h)  # (n, H)
        f = (Wx[parents, 3 * H :] + self.U_f(h)).sigmoid()  # (A, H)
        kept = Wx.new_zeros(len(Wx), H).index_add(0, parents, f * c)  # (n, H)
        return Wx[:, : 3 * H] + self.U(h_sum), kept


class BinaryCell(nn.Module):
    """The N-ary cell with N = 2: a left and a right child, each with its matrices."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.W = nn.Linear(input_size, 4 * hidden_size)  # of i, o, u and f
        # Of i, o, u, the left child's f and the right child's, from both children.
        self.U = nn.Linear(2 * hidden_size, 5 * hidden_size, bias=False)

    def forward(
        self, Wx: Tensor, h: Tensor, c: Tensor, parents: Tensor, columns: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return what `ChildSumCell` does; column 2 tells left from right."""
        n, H = len(Wx), h.shape[1]
        place = 2 * parents + columns[:, 2]  # (A,)
        empty = Wx.new_zeros(2 * n, H)
        h_pair = empty.index_add(0, place, h).view(n, 2 * H)
        c_pair = empty.index_add(0, place, c).view(n, 2, H)
        iou, f_pair = self.U(h_pair).split([3 * H, 2 * H], 1)
        f = (Wx[:, None, 3 * H :] + f_pair.view(n, 2, H)).sigmoid()  # (n, 2, H)
        return Wx[:, : 3 * H] + iou, (f * c_pair).sum(1)


class TreeLstm(Network):
    """Words and trees to classes, by the cell that a subclass names."""

    Cell: type[ChildSumCell | BinaryCell]
    # The order of the nodes is planned on the host, so no step can be a CUDA graph.
    capturable = False

    def __init__(
        self,
        embedding: nn.Embedding,
        *,
        hidden_size: int,
        n_classes: int,
        dropout: float = 0.5,
        several: bool = False,
    ) -> None:
        super().__init__(n_classes)
        self.embedding = embedding
        self.hidden_size, self.several = hidden_size, several
        self.cell = self.Cell(embedding.embedding_dim, hidden_size)
        self.dropout = nn.Dropout(dropout)
        self.classes = nn.Linear(hidden_size, n_classes)

    def forward(self, ids: Tensor, mask: Tensor) -> ClassOutput:
        """Documents (B, T, F) and their mask (B, T) to logits of the classes.

        In training, where nodes have labels, the penalty is the cross-entropy of all
        labelled nodes but the roots, summed over a tree and averaged over the batch:
        with the roots' own loss this is the objective of Tai et al., every labelled
        node weighing the same.
        """
        B, T, F_ = ids.shape
        forest = plan_forest(ids[:, :, 1], mask)
        columns = ids.reshape(B * T, F_)[forest.nodes]  # (N, F)
        states = self.states(columns, forest)  # (N, H)
        owner = (forest.nodes // T)[forest.roots]  # (R,)
        roots = states[forest.roots]  # (R, H)
        total = states.new_zeros(B, self.hidden_size).index_add(0, owner, roots)
        n_roots = torch.bincount(owner, minlength=B).clamp(min=1)  # (B,)
        logits = self.classes(self.dropout(total / n_roots[:, None]))  # (B, J)
        penalty = None
        if self.training and F_ > 3:
            labels = columns[:, 3].index_fill(0, forest.roots, 0)  # (N,)
            penalty = self.node_loss(states, labels) / B
        return ClassOutput(logits, penalty, self.several)

    def states(self, columns: Tensor, forest: Forest) -> Tensor:
        """Return every node's state h (N, H), the nodes ordered as the forest's."""
        words, H = columns[:, 0], self.hidden_size
        x = self.embedding(words) * (words != 0).unsqueeze(1)  # (N, V), or no word: 0
        Wx = self.cell.W(x)  # (N, 4H)
        done = Wx.new_zeros(0, 2 * H)  # h and c of the nodes so far
        node, arc = 0, 0
        bounds = zip(forest.node_bounds, forest.arc_bounds, strict=True)
        for node_end, arc_end in bounds:
            iou, kept = Wx[node:node_end, : 3 * H], 0
            if arc_end > arc:  # all but the leaves
                children = forest.children[arc:arc_end]
                h, c = done[children].split(H, 1)  # (A, H)
                parents = forest.parents[arc:arc_end] - node
                iou, kept = self.cell(
                    Wx[node:node_end], h, c, parents, columns[children]
                )
            i, o, u = iou.split(H, 1)
            c = i.sigmoid() * u.tanh() + kept
            done = torch.cat([done, torch.cat([o.sigmoid() * c.tanh(), c], 1)])
            node, arc = node_end, arc_end
        return done[:, :H]

    def node_loss(self, states: Tensor, labels: Tensor) -> Tensor:
        """Return the summed cross-entropy of the nodes (N, H) that have a label."""
        labelled = labels > 0
        logits = self.classes(self.dropout(states[labelled]))  # (L, J)
        classes = labels[labelled].long() - 1
        if not self.several:
            return F.cross_entropy(logits, classes, reduction="sum")
        targets = F.one_hot(classes, logits.shape[1]).to(logits.dtype)
        return F.binary_cross_entropy_with_logits(logits, targets, reduction="sum")


class ChildSumTreeLstm(TreeLstm):
    """The dependency Tree-LSTM: ids (B, T, 2) hold words and the offsets of heads."""

    Cell = ChildSumCell


class NaryTreeLstm(TreeLstm):
    """The constituency Tree-LSTM: ids (B, T, 3 or 4) hold binary trees."""

    Cell = BinaryCell
