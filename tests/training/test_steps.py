"""Training steps: captured ones follow plain ones, text for text."""

import copy

import numpy as np
import pytest
import torch

from textcapsules.config import preset
from textcapsules.model.builder import build_network
from textcapsules.text.batch import epoch_batches, make_batch
from textcapsules.training.steps import (
    EagerSteps,
    GraphSteps,
    make_steps,
    padded_length,
)
from toy import TINY_MODEL

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def problem(n_texts: int = 37, seed: int = 0):
    rng = np.random.default_rng(seed)
    documents = [
        rng.integers(2, 50, rng.integers(1, 30)).astype(np.int32)
        for _ in range(n_texts)
    ]
    return documents, np.eye(3, dtype=np.float32)[rng.integers(0, 3, n_texts)]


def losses(kind, device: str, *, epochs: int = 6, n_texts: int = 37, **sections):
    """Return the loss of every batch of some epochs, and the final weights."""
    model = {**TINY_MODEL, **sections.pop("model", {})}
    train = {"batch_size": 8, "learning_rate": 0.01, **sections.pop("train", {})}
    config = preset("paper").replace(model=model, train=train, **sections)
    torch.manual_seed(0)
    network = build_network(config.model, n_words=50, n_classes=3, max_tokens=40)
    steps = kind(config, network.to(device), torch.device(device))
    found = []
    for epoch in range(epochs):
        steps.set_rate(0.01 * 0.9**epoch)
        documents, targets = problem(n_texts, seed=epoch % 2)
        batches = epoch_batches(list(map(len, documents)), 8, seed=0, epoch=epoch)
        found += [float(x) for x in steps.run(documents, targets, batches, epoch)]
    return found, [p.detach().cpu() for p in network.parameters()]


def test_losses_are_summed_over_the_texts_of_a_batch() -> None:
    config = preset("paper").replace(model=TINY_MODEL, train={"learning_rate": 1e-50})
    torch.manual_seed(0)
    network = build_network(config.model, n_words=50, n_classes=3, max_tokens=40)
    steps = EagerSteps(config, network, torch.device("cpu"))
    documents, targets = problem(6)
    together = sum(steps.run(documents, targets, [np.arange(6)], 0))
    alone = sum(steps.run(documents, targets, [np.array([row]) for row in range(6)], 0))
    assert float(together) == pytest.approx(float(alone), rel=1e-5)


def test_plain_steps_learn_and_the_rate_matters() -> None:
    found, _ = losses(EagerSteps, "cpu", epochs=10, n_texts=16)
    assert found[-1] < found[0]


@pytest.mark.parametrize("file", ["vectors.npz", None])
@pytest.mark.parametrize("share", [1.0, 0.25, 0.0])
def test_vectors_from_a_file_take_their_share_of_the_rate(share, file) -> None:
    config = preset("paper").replace(
        model=TINY_MODEL, text={"vectors": file}, train={"vector_rate": share}
    )
    torch.manual_seed(0)
    network = build_network(config.model, n_words=50, n_classes=3, max_tokens=40)
    before = {name: p.detach().clone() for name, p in network.named_parameters()}
    steps = EagerSteps(config, network, torch.device("cpu"))
    steps.set_rate(0.01)
    list(steps.run(*problem(16), [np.arange(16)], 0))
    moved = {
        name: float((p.detach() - before[name]).abs().max())
        for name, p in network.named_parameters()
    }
    # Adam's first step is the rate wherever the gradient is well above its epsilon.
    words = moved.pop("embedding.weight")
    assert words == pytest.approx(0.01 * (share if file else 1), rel=1e-2)
    assert max(moved.values()) == pytest.approx(0.01, rel=1e-2)


# What a matrix product weighs by: neither word vectors nor biases.
PRODUCTS = {
    "branches.0.ngrams.conv.weight",
    "branches.0.primary.linear.weight",
    "branches.0.conv.transform",
    "branches.0.classes.transform",
}


@pytest.mark.parametrize("share", [1.0, 0.25])
def test_weights_decay_as_in_a_loop_over_adamw(share) -> None:
    decay, rate = 0.3, 0.01
    config = preset("paper").replace(
        model=TINY_MODEL,
        text={"vectors": "vectors.npz"},
        train={"vector_rate": share, "weight_decay": decay},
    )
    torch.manual_seed(0)
    network = build_network(config.model, n_words=50, n_classes=3, max_tokens=40)
    other = copy.deepcopy(network)
    documents, targets = problem(24)
    batches = [np.arange(start, start + 8) for start in (0, 8, 16)] * 4
    steps = EagerSteps(config, network, torch.device("cpu"))
    steps.set_rate(rate)
    list(steps.run(documents, targets, batches, 0))

    groups = [
        {
            "params": [parameter],
            "weight_decay": decay if name in PRODUCTS else 0.0,
            "lr": rate * (share if name == "embedding.weight" else 1),
        }
        for name, parameter in other.named_parameters()
    ]
    adamw = torch.optim.AdamW(groups, foreach=False, fused=False)
    for rows in batches:
        batch = make_batch(documents, targets, rows)
        lengths = other(batch.ids, batch.mask).scores
        present = batch.targets * (0.9 - lengths).clamp(min=0) ** 2
        absent = (1 - batch.targets) * (lengths - 0.1).clamp(min=0) ** 2
        adamw.zero_grad()
        (present + 0.5 * absent).sum(1).mean().backward()
        adamw.step()
    for (name, one), two in zip(
        network.named_parameters(), other.parameters(), strict=True
    ):
        torch.testing.assert_close(one, two, rtol=1e-3, atol=1e-5, msg=name)


def test_no_decay_is_adam_in_as_few_groups_as_before() -> None:
    config = preset("paper").replace(model=TINY_MODEL)
    network = build_network(config.model, n_words=50, n_classes=3, max_tokens=40)
    steps = EagerSteps(config, network, torch.device("cpu"))
    assert isinstance(steps.optimiser, torch.optim.Adam)
    assert not isinstance(steps.optimiser, torch.optim.AdamW)
    (group,) = steps.optimiser.param_groups
    names = {id(p): name for name, p in network.named_parameters()}
    assert [names[id(p)] for p in group["params"]] == list(names.values())


def test_steps_are_captured_on_a_gpu_only() -> None:
    config = preset("paper").replace(model=TINY_MODEL)
    network = build_network(config.model, n_words=50, n_classes=3, max_tokens=40)
    assert type(make_steps(config, network, torch.device("cpu"))) is EagerSteps


def test_padded_length_never_cuts_a_text() -> None:
    for longest in range(60):
        assert longest <= padded_length(longest, None) < longest + 9


@pytest.mark.parametrize(("architecture", "lengths"), [("cnn", 4), ("vd-cnn", 1)])
def test_a_network_may_ask_for_fewer_lengths(architecture, lengths) -> None:
    config = preset("paper").replace(model={"architecture": architecture})
    network = build_network(config.model, n_words=50, n_classes=3, max_tokens=40)
    steps = GraphSteps(config, network, torch.device("cpu"))
    seen = set()
    steps.step = lambda chosen, longest, epoch: seen.add(longest) or torch.ones(())  # type: ignore[method-assign]
    documents, targets = problem()
    list(steps.run(documents, targets, [np.array([row]) for row in range(37)], 0))
    assert len(seen) == lengths


def test_padding_needs_no_position_that_has_no_weights() -> None:
    config = preset("paper").replace(model={**TINY_MODEL, "shared": False})
    network = build_network(config.model, n_words=50, n_classes=3, max_tokens=29)
    steps = GraphSteps(config, network, torch.device("cpu"))
    documents, targets = problem()
    assert max(map(len, documents)) == 29
    losses = list(steps.run(documents, targets, [np.arange(37)], 0))
    assert all(loss.isfinite() for loss in losses)


def test_texts_are_copied_once_and_graphs_forgotten_when_they_must() -> None:
    config = preset("paper").replace(model=TINY_MODEL, loss={"loss": "spread"})
    network = build_network(config.model, n_words=50, n_classes=3, max_tokens=40)
    steps = GraphSteps(config, network, torch.device("cpu"))
    documents, targets = problem()
    steps.load(documents, targets, 0)
    ids, graphs = steps.ids, {8: "a graph"}
    steps.graphs = dict(graphs)  # type: ignore[arg-type]
    documents[0][:] = 7  # seen only if the texts were read again
    steps.load(documents, targets, 0)
    assert steps.ids is ids
    assert not (ids[0] == 7).any()
    steps.load(list(documents), targets, 0)  # others of the same shape: in place
    assert steps.ids is ids
    assert (ids[0, : len(documents[0])] == 7).all()
    assert steps.graphs == graphs
    steps.load(documents[1:], targets[1:], 0)  # fewer: the graphs' place is gone
    assert len(steps.ids) == 36
    assert not steps.graphs
    steps.graphs = dict(graphs)  # type: ignore[arg-type]
    steps.load(*steps.texts, 1)  # another margin is frozen into the graphs
    assert not steps.graphs


@needs_gpu
@pytest.mark.parametrize(
    "sections",
    [
        {},
        {"model": {"embeddings": "static"}},
        {"model": {"shared": False}},
        {"loss": {"loss": "spread"}},
        {"loss": {"orphan_in_loss": True}},
        {"model": {"edges": True}},
        {"loss": {"loss": "entropy"}},
        {"loss": {"loss": "binary-cross-entropy", "absent_weight": 0.5}},
        {"train": {"weight_decay": 0.1}},
    ],
    ids=str,
)
def test_captured_steps_follow_plain_ones(sections) -> None:
    plain, plain_weights = losses(EagerSteps, "cuda", **sections)
    captured, weights = losses(GraphSteps, "cuda", **sections)
    # The same kernels in the same order: what is left is padding to other lengths,
    # which changes the order of sums, amplified by some dozens of steps.
    assert captured == pytest.approx(plain, rel=1e-3)
    for one, other in zip(plain_weights, weights, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-2, atol=2e-3)


@needs_gpu
@pytest.mark.parametrize("architecture", ["cl-cnn", "vd-cnn"])
def test_networks_over_characters_are_captured(architecture) -> None:
    config = preset("paper").replace(
        model={"architecture": architecture},
        baseline={"output_dropout": 0.0},
        loss={"loss": "cross-entropy"},
        train={"batch_size": 8},
    )
    documents, targets = problem()
    found: dict[type, list[float]] = {}
    for kind in (EagerSteps, GraphSteps):
        torch.manual_seed(0)
        network = build_network(
            config.model,
            n_words=50,
            n_classes=3,
            max_tokens=150,
            baseline=config.baseline,
        )
        steps = kind(config, network.to("cuda"), torch.device("cuda"))
        steps.set_rate(1e-5)
        found[kind] = []
        for epoch in range(3):
            batches = epoch_batches(list(map(len, documents)), 8, seed=0, epoch=epoch)
            losses = steps.run(documents, targets, batches, epoch)
            found[kind] += [float(loss) for loss in losses]
    assert isinstance(steps, GraphSteps)
    assert not steps.refused
    assert len(steps.graphs) == 1
    assert found[GraphSteps] == pytest.approx(found[EagerSteps], rel=1e-2)


@needs_gpu
def test_captured_steps_repeat_bit_for_bit() -> None:
    assert losses(GraphSteps, "cuda")[0] == losses(GraphSteps, "cuda")[0]


def test_steps_go_on_where_nothing_can_be_captured(caplog) -> None:
    """A machine without CUDA refuses every capture: the plain steps are taken."""
    if torch.cuda.is_available():
        pytest.skip("a GPU captures")
    plain, plain_weights = losses(EagerSteps, "cpu")
    found, weights = losses(GraphSteps, "cpu")
    assert found == pytest.approx(plain, rel=1e-4)
    for one, other in zip(plain_weights, weights, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)
    assert len([r for r in caplog.records if "uncaptured" in r.message]) == 1


@needs_gpu
def test_steps_go_on_where_the_network_cannot_be_captured(caplog) -> None:
    config = preset("paper").replace(
        model={**TINY_MODEL, "dropout": 0.5}, train={"batch_size": 8}
    )
    torch.manual_seed(0)
    network = build_network(config.model, n_words=50, n_classes=3, max_tokens=40)
    network.register_forward_hook(lambda *_: torch.cuda.synchronize())
    steps = GraphSteps(config, network.to("cuda"), torch.device("cuda"))
    documents, targets = problem()
    found: list[float] = []
    for epoch in range(4):
        batches = epoch_batches(list(map(len, documents)), 8, seed=0, epoch=epoch)
        found += [float(x) for x in steps.run(documents, targets, batches, epoch)]
    assert np.isfinite(found).all()
    assert torch.rand(3, device="cuda").isfinite().all()  # random numbers still come
    assert len([r for r in caplog.records if "uncaptured" in r.message]) == 1
