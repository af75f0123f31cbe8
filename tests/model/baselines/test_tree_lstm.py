"""Tree-LSTMs against a plain recursion over each tree, written from the paper."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from textcapsules.model.baselines.tree_lstm import (
    ChildSumTreeLstm,
    NaryTreeLstm,
    TreeLstm,
    plan_forest,
)

N_WORDS, V, H, J = 12, 3, 4, 3
Document = Sequence[Sequence[int]]

# Word, offset of the head. A head cut off is one outside the document.
CHILD_SUM: dict[str, Document] = {
    "one node": [(3, 0)],
    "chain": [(word, 1) for word in range(1, 7)] + [(7, 0)],
    "chain to the left": [(1, 0)] + [(word, -1) for word in range(2, 9)],
    "wide": [(word, 4 - place) for place, word in enumerate([5, 2, 9, 9, 4, 1, 8])],
    "two trees": [(2, 1), (3, 0), (4, 1), (5, 1), (6, 0)],
    "cut off": [(2, 3), (3, -1), (4, 40)],
    "cut off before": [(2, -5), (3, -1)],
    "cycle": [(2, 1), (3, 1), (4, -1), (5, -3)],
    "cycle of two": [(2, 1), (3, -1)],
    "unknown and no word": [(1, 1), (0, 0)],
}
# Word or none, offset of the parent, which child, label.
BINARY: dict[str, Document] = {
    "leaf": [(3, 0, 0, 2)],
    "pair": [(3, 2, 0, 0), (4, 1, 1, 1), (0, 0, 0, 3)],
    "left branch": [
        (3, 2, 0, 1),
        (4, 1, 1, 0),
        (0, 2, 0, 2),
        (5, 1, 1, 0),
        (0, 0, 0, 1),
    ],
    "right branch": [
        (3, 4, 0, 0),
        (4, 2, 0, 0),
        (5, 1, 1, 0),
        (0, 1, 1, 3),
        (0, 0, 0, 0),
    ],
    "cut off": [(3, 2, 0, 0), (4, 1, 1, 0), (0, 2, 0, 2), (5, 1, 1, 0)],
    "only a right child": [(3, 1, 1, 0), (0, 0, 0, 1)],
}


def random_document(draw: np.random.Generator, n_nodes: int) -> Document:
    """Return any forest: heads are drawn among nodes already attached."""
    order = draw.permutation(n_nodes)
    heads = [
        draw.choice(order[:k]) if k and draw.random() < 0.9 else -1
        for k in range(n_nodes)
    ]
    offsets = {
        int(node): int(head - node) if head >= 0 else 0
        for node, head in zip(order, heads, strict=True)
    }
    return [
        (int(draw.integers(1, N_WORDS)), offsets[place]) for place in range(n_nodes)
    ]


def pad(documents: Sequence[Document], extra: int = 0) -> tuple[Tensor, Tensor]:
    """Return (B, T, F) numbers and their mask; padding is filled with nonsense."""
    T = max(len(document) for document in documents) + extra
    ids = torch.full(
        (len(documents), max(T, 1), max(len(d[0]) for d in documents if d)), 1
    )
    mask = torch.zeros(ids.shape[:2], dtype=torch.bool)
    for row, document in enumerate(documents):
        if document:
            ids[row, : len(document)] = torch.tensor(document)
            mask[row, : len(document)] = True
    return ids, mask


def network(kind: type[TreeLstm], **options: bool) -> TreeLstm:
    torch.manual_seed(0)
    embedding = nn.Embedding(N_WORDS, V)
    built = kind(embedding, hidden_size=H, n_classes=J, dropout=0.0, **options)  # type: ignore[call-arg]
    with torch.no_grad():  # large weights, so that every gate matters
        for parameter in built.parameters():
            parameter.uniform_(-1.5, 1.5)
    return built.double()


def tree_parents(document: Document) -> list[int | None]:
    """Return each node's parent, none if it has none or is on a cycle."""
    parents: list[int | None] = []
    for place, (_, offset, *_) in enumerate(document):
        head = place + offset
        parents.append(head if offset and 0 <= head < len(document) else None)
    cut = list(parents)
    for place in range(len(document)):
        walker: int | None = parents[place]
        for _ in document:
            if walker is None or walker == place:
                break
            walker = parents[walker]
        if walker == place:
            cut[place] = None
    return cut


def recursion(net: TreeLstm, document: Document) -> tuple[Tensor, dict[int, Tensor]]:
    """Return the logits of one document and every node's state, node by node."""
    cell: Any = net.cell
    W = dict(zip("iouf", cell.W.weight.split(H), strict=True))
    b = dict(zip("iouf", cell.W.bias.split(H), strict=True))
    parents, states = tree_parents(document), {}

    def child_sum(x: Tensor, children: list[int]) -> tuple[Tensor, Tensor]:
        U = dict(zip("iou", cell.U.weight.split(H), strict=True))
        below = [visit(child) for child in children]
        h_sum = sum((h for h, _ in below), torch.zeros(H).double())
        i = torch.sigmoid(W["i"] @ x + U["i"] @ h_sum + b["i"])
        o = torch.sigmoid(W["o"] @ x + U["o"] @ h_sum + b["o"])
        u = torch.tanh(W["u"] @ x + U["u"] @ h_sum + b["u"])
        c = i * u
        for h_k, c_k in below:
            c = c + torch.sigmoid(W["f"] @ x + cell.U_f.weight @ h_k + b["f"]) * c_k
        return o * torch.tanh(c), c

    def binary(x: Tensor, children: list[int]) -> tuple[Tensor, Tensor]:
        left_right = [(torch.zeros(H).double(), torch.zeros(H).double())] * 2
        for child in children:
            left_right[document[child][2]] = visit(child)
        # Five gates, each with one matrix for the left child and one for the right.
        U = {
            gate: rows.split(H, 1)
            for gate, rows in zip(
                ["i", "o", "u", "f0", "f1"], cell.U.weight.split(H), strict=True
            )
        }

        def gate(name: str) -> Tensor:
            total = W[name[0]] @ x + b[name[0]]
            for matrix, (h_l, _) in zip(U[name], left_right, strict=True):
                total = total + matrix @ h_l
            return total

        c = torch.sigmoid(gate("i")) * torch.tanh(gate("u"))
        for k, (_, c_k) in enumerate(left_right):
            c = c + torch.sigmoid(gate(f"f{k}")) * c_k
        return torch.sigmoid(gate("o")) * torch.tanh(c), c

    def visit(node: int) -> tuple[Tensor, Tensor]:
        word = document[node][0]
        x = net.embedding.weight[word] if word else torch.zeros(V).double()
        children = [k for k, parent in enumerate(parents) if parent == node]
        compute = child_sum if isinstance(net, ChildSumTreeLstm) else binary
        states[node], c = compute(x, children)
        return states[node], c

    roots = [visit(node)[0] for node, parent in enumerate(parents) if parent is None]
    mean = sum(roots, torch.zeros(H).double()) / max(len(roots), 1)
    return net.classes.weight @ mean + net.classes.bias, states


KINDS = [(ChildSumTreeLstm, CHILD_SUM), (NaryTreeLstm, BINARY)]
CASES = [(kind, name) for kind, documents in KINDS for name in documents]


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_logits_are_the_recursions(kind: type[TreeLstm], name: str) -> None:
    net = network(kind)
    document = dict(KINDS)[kind][name]
    logits = net(*pad([document], extra=2)).logits
    torch.testing.assert_close(logits[0], recursion(net, document)[0])


@pytest.mark.parametrize("seed", range(5))
def test_random_forests_in_one_batch_and_all_gradients(seed: int) -> None:
    draw = np.random.default_rng(seed)
    documents = [random_document(draw, int(n)) for n in draw.integers(1, 15, 6)]
    net = network(ChildSumTreeLstm)
    check_gradients(net, [*documents, *CHILD_SUM.values()])


def test_gradients_of_binary_trees_are_the_recursions() -> None:
    check_gradients(network(NaryTreeLstm), list(BINARY.values()))


def check_gradients(net: TreeLstm, documents: Sequence[Document]) -> None:
    net.eval()
    weights = torch.randn(len(documents), J).double()
    parameters = dict(net.named_parameters())
    logits = net(*pad(documents)).logits
    plain = torch.stack([recursion(net, document)[0] for document in documents])
    torch.testing.assert_close(logits, plain)
    gradients = torch.autograd.grad((logits * weights).sum(), list(parameters.values()))
    truth = torch.autograd.grad((plain * weights).sum(), list(parameters.values()))
    for name, mine, theirs in zip(parameters, gradients, truth, strict=True):
        assert theirs.abs().sum() > 0, name
        torch.testing.assert_close(mine, theirs, msg=name)


def test_order_of_the_batch_and_padding_change_nothing() -> None:
    net = network(ChildSumTreeLstm)
    documents = list(CHILD_SUM.values())
    together = net(*pad(documents, extra=5)).logits
    backwards = net(*pad(documents[::-1])).logits.flip(0)
    alone = torch.cat([net(*pad([document])).logits for document in documents])
    torch.testing.assert_close(together, backwards)
    torch.testing.assert_close(together, alone)


def test_joined_documents_are_a_forest_of_both() -> None:
    net = network(ChildSumTreeLstm)
    first, second = CHILD_SUM["chain"], CHILD_SUM["wide"]
    joined = net(*pad([[*first, *second]])).logits[0]
    each = [net(*pad([document])).logits[0] for document in (first, second)]
    torch.testing.assert_close(joined, (each[0] + each[1]) / 2)


@pytest.mark.parametrize("kind", [ChildSumTreeLstm, NaryTreeLstm])
def test_documents_without_words_get_the_bias(kind: type[TreeLstm]) -> None:
    net = network(kind)
    ids, mask = torch.zeros(2, 3, 4).long(), torch.zeros(2, 3).bool()
    torch.testing.assert_close(net(ids, mask).logits, net.classes.bias.expand(2, J))


def test_penalty_is_the_loss_of_labelled_nodes_below_the_root() -> None:
    net = network(NaryTreeLstm).train()
    names = ["left branch", "right branch", "cut off"]
    documents = [BINARY[name] for name in names]
    total = 0.0
    for document in documents:
        states = recursion(net, document)[1]
        for node, parent in enumerate(tree_parents(document)):
            label = document[node][3]
            if label and parent is not None:
                logits = net.classes.weight @ states[node] + net.classes.bias
                total -= math.log(torch.softmax(logits, 0)[label - 1].item())
    penalty = net(*pad(documents)).penalty
    assert penalty is not None
    assert penalty.item() == pytest.approx(total / len(documents))
    assert net.eval()(*pad(documents)).penalty is None


def test_penalty_of_several_classes_is_each_ones_own() -> None:
    net = network(NaryTreeLstm, several=True).train()
    document = BINARY["pair"]
    output = net(*pad([document]))
    logits = net.classes(recursion(net, document)[1][1])
    truth = F.binary_cross_entropy_with_logits(
        logits, torch.tensor([1.0, 0, 0]).double(), reduction="sum"
    )
    assert output.penalty is not None
    torch.testing.assert_close(output.penalty, truth)
    torch.testing.assert_close(output.scores, output.logits.sigmoid())


def test_trees_without_labels_have_no_penalty() -> None:
    unlabelled = [node[:3] for node in BINARY["pair"]]
    assert network(NaryTreeLstm).train()(*pad([unlabelled])).penalty is None
    zero = [(*node[:3], 0) for node in BINARY["pair"]]
    penalty = network(NaryTreeLstm).train()(*pad([zero])).penalty
    assert penalty is not None and penalty.item() == 0


def test_forest_computes_children_first_and_each_node_once() -> None:
    draw = np.random.default_rng(3)
    documents = [random_document(draw, int(n)) for n in draw.integers(1, 40, 20)]
    ids, mask = pad(documents)
    forest = plan_forest(ids[:, :, 1], mask)
    assert sorted(forest.nodes.tolist()) == mask.flatten().nonzero().flatten().tolist()
    start = np.searchsorted(forest.node_bounds, np.arange(len(forest.nodes)), "right")
    below, above = start[forest.children], start[forest.parents]
    assert (below < above).all()
    assert len(forest.children) + len(forest.roots) == len(forest.nodes)


def test_deep_chain_of_a_long_text_is_computed() -> None:
    chain = [(1 + place % 9, 1) for place in range(2000)]
    ids, mask = pad([chain])
    assert len(plan_forest(ids[:, :, 1], mask).node_bounds) == 2000
    assert network(ChildSumTreeLstm)(*pad([chain[:300]])).logits.isfinite().all()


def test_trees_are_learned() -> None:
    """Who bites whom: the same words, told apart by their heads alone."""
    torch.manual_seed(1)
    net = ChildSumTreeLstm(
        nn.Embedding(N_WORDS, 8), hidden_size=8, n_classes=2, dropout=0.0
    )
    documents = [[(2, 1), (3, 1), (4, 0)], [(2, 2), (3, 0), (4, -1)]]
    ids, mask = pad(documents)
    optimiser = torch.optim.Adam(net.parameters(), 0.05)
    for _ in range(40):
        optimiser.zero_grad()
        F.cross_entropy(net(ids, mask).logits, torch.tensor([0, 1])).backward()
        optimiser.step()
    assert net(ids, mask).scores.argmax(1).tolist() == [0, 1]
