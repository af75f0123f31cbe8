"""How much states and pieces count: shares chosen on dev texts."""

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from torch import Tensor, nn

from textcapsules.config import ModelConfig, RunConfig
from textcapsules.model.builder import View, build_branch
from textcapsules.model.capsnet import CapsuleNetwork
from textcapsules.model.network import ClassOutput, Network
from textcapsules.training import views
from textcapsules.training.prepare import Encoded
from textcapsules.training.selection import DevSet
from textcapsules.training.views import best_share, share_views

N_CLASSES = 3


def sigmoid(values: NDArray) -> NDArray:
    return 1 / (1 + np.exp(-values))


def drawn(noise: float, seed: int) -> tuple[NDArray, NDArray]:
    """Return labels of 300 texts and scores that know them, but for some noise."""
    truth = np.eye(N_CLASSES)[np.arange(300) % N_CLASSES]
    draw = np.random.default_rng(seed)
    return truth, sigmoid(2 * truth - 1 + noise * draw.normal(size=truth.shape))


def test_the_better_view_counts_more_and_the_other_way_round() -> None:
    truth, good = drawn(0.3, 0)
    _, bad = drawn(3.0, 1)
    share = best_share(good, bad, truth)
    assert share > 0.7
    assert best_share(bad, good, truth) == pytest.approx(1 - share)


def test_a_view_of_noise_alone_does_not_count() -> None:
    truth, good = drawn(0.1, 0)
    noise = np.random.default_rng(1).random(truth.shape)
    assert best_share(good, noise, truth) >= 0.9


def test_the_share_is_that_of_a_plain_search() -> None:
    truth, first = drawn(0.8, 0)
    _, second = drawn(1.2, 1)

    def loss(share: float) -> float:
        scores = share * first + (1 - share) * second
        logits = np.log(scores / (1 - scores)).reshape(-1, 1)
        model = LogisticRegression(C=1e9, tol=1e-9).fit(logits, truth.ravel())
        return log_loss(truth.ravel(), model.predict_proba(logits)[:, 1])

    shares = np.linspace(0, 1, 21)
    best = shares[np.argmin([loss(share) for share in shares])]
    assert 0.5 < best < 1
    assert best_share(first, second, truth) == pytest.approx(best)


def test_of_equal_shares_a_half_is_taken() -> None:
    truth, scores = drawn(0.5, 0)
    assert best_share(scores, scores, truth) == 0.5


class OfTwoViews(CapsuleNetwork):
    """Scores by the shares of its networks: the i-th of them has its own lengths."""

    def __init__(self, lengths: dict[int, NDArray], of_states: list[bool]) -> None:
        n = len(of_states)
        super().__init__(
            nn.Embedding(2, 1), [], n_classes=N_CLASSES, shares=[1 / n] * n
        )
        self.branches = nn.ModuleList(branch(which) for which in of_states)
        self.of_texts, self.of_states = lengths, of_states


def branch(of_states: bool) -> nn.Module:
    numbers = (0, 4) if of_states else (4, 6)
    config = ModelConfig(filters=2, capsule_types=2, capsule_size=2)
    view = View(numbers, has_peaks=False)
    return build_branch(config, (1,), view, N_CLASSES, 8)


def dev_set(truth: NDArray, **train: Any) -> DevSet:
    documents = [np.array([2 + row]) for row in range(len(truth))]
    config = RunConfig().replace(train={"select": "joined", **train})
    return DevSet(config, Encoded(documents, truth.astype(np.float32)))


@pytest.fixture
def scored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let documents, one number each, be scored by the shares alone."""

    def scores(network: OfTwoViews, documents: list[NDArray]) -> NDArray:
        assert network.shares is not None
        rows = [int(ids[0]) - 2 for ids in documents]
        total = np.zeros((len(rows), N_CLASSES))
        for share, is_of_states in zip(
            network.shares.tolist(), network.of_states, strict=True
        ):
            total += share * network.of_texts[int(is_of_states)][rows]
        return total.astype(np.float32)

    monkeypatch.setattr(views, "score_documents", scores)


@pytest.mark.usefixtures("scored")
@pytest.mark.parametrize(
    "of_states", [[True, False], [True, True, False, False, False]]
)
def test_shares_of_a_network_are_those_of_its_record(of_states: list[bool]) -> None:
    truth, good = drawn(0.3, 0)
    truth[::5] = np.roll(truth[::5], 1, axis=1) + truth[::5]  # texts of two labels
    _, bad = drawn(3.0, 1)
    network = OfTwoViews({1: bad, 0: good}, of_states)
    record = share_views(network, dev_set(truth))
    assert record is not None and network.shares is not None
    assert record["pieces"] > 0.7
    assert record["states"] + record["pieces"] == pytest.approx(1)
    shares = network.shares.tolist()
    assert math.fsum(shares) == pytest.approx(1)
    n_states = sum(of_states)
    assert shares[:n_states] == pytest.approx([record["states"] / n_states] * n_states)
    n_pieces = len(of_states) - n_states
    assert shares[n_states:] == pytest.approx([record["pieces"] / n_pieces] * n_pieces)


@pytest.mark.usefixtures("scored")
@pytest.mark.parametrize(("n_texts", "is_chosen"), [(29, False), (30, True)])
def test_few_dev_texts_choose_nothing(n_texts: int, is_chosen: bool) -> None:
    truth, good = drawn(0.3, 0)
    _, bad = drawn(3.0, 1)
    network = OfTwoViews({1: good, 0: bad}, [True, False])
    record = share_views(network, dev_set(truth[:n_texts], select="accuracy"))
    assert record is not None
    assert (record["states"] != 0.5) == is_chosen


@pytest.mark.usefixtures("scored")
def test_joined_dev_texts_are_counted_where_several_labels_are_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    truth, scores = drawn(0.3, 0)
    seen: list[int] = []

    def counted(first: NDArray, second: NDArray, targets: NDArray) -> float:
        seen.append(len(targets))
        assert len(first) == len(second) == len(targets)
        return 0.5

    monkeypatch.setattr(views, "best_share", counted)
    network = OfTwoViews({1: scores, 0: scores}, [True, False])
    for select in ("joined", "accuracy"):
        share_views(network, dev_set(truth[:60], select=select))
    dev = dev_set(truth[:60])
    assert seen == [len(dev.calibration_texts.documents), 60]
    assert seen[0] > 60


def test_networks_of_one_view_are_left_alone() -> None:
    class Plain(Network):
        def forward(self, ids: Tensor, mask: Tensor) -> ClassOutput:
            raise AssertionError("nothing is to be scored")

    truth, _ = drawn(0.3, 0)
    dev = dev_set(truth)
    assert share_views(Plain(N_CLASSES), dev) is None
    network = CapsuleNetwork(nn.Embedding(2, 1), [], n_classes=N_CLASSES)
    assert share_views(network, dev) is None
    assert network.shares is None
