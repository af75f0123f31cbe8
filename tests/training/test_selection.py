"""Which documents thresholds and epochs are chosen on, against counts by hand."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from textcapsules.config import RunConfig
from textcapsules.training import selection
from textcapsules.training.join import joined_pairs
from textcapsules.training.prepare import Encoded
from textcapsules.training.selection import DevSet

N_LABELS = 3


class Stub:
    """Scores a document by the words of each label in it: word j speaks for label j.

    As a network that was shown one label per text, it shares out what it has: a
    document of two labels has two lower scores.
    """

    def __init__(self, seed: int = 0, shifts: Sequence[float] = (0, 0, 0)) -> None:
        self.random, self.shifts = np.random.default_rng(seed), np.array(shifts)
        self.asked: list[int] = []  # documents scored at a time

    def score(self, documents: Sequence[NDArray]) -> NDArray[np.float32]:
        self.asked.append(len(documents))
        counts = np.array([np.bincount(ids, minlength=N_LABELS) for ids in documents])
        shares = counts / counts.sum(1, keepdims=True)
        noise = self.random.normal(scale=0.1, size=shares.shape)
        odds = 4 * (shares + noise) - 2 + self.shifts
        return (1 / (1 + np.exp(-odds))).astype(np.float32)


def network(seed: int = 0, shifts: Sequence[float] = (0, 0, 0)) -> Any:
    return Stub(seed, shifts)


@pytest.fixture(autouse=True)
def scored_by_stub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        selection,
        "score_documents",
        lambda stub, documents: stub.score(documents),
    )


def config(**train) -> RunConfig:
    return RunConfig().replace(train={"select": "joined", **train})


def singles(n_texts: int = 90) -> Encoded:
    labels = np.arange(n_texts) % N_LABELS
    return Encoded(
        [np.full(10, label, dtype=np.int32) for label in labels],
        np.eye(N_LABELS, dtype=np.float32)[labels],
    )


def exact(scores: NDArray, thresholds, targets: NDArray) -> float:
    """Count the documents whose every label is right."""
    right = 0
    for row, truth in zip(scores, targets, strict=True):
        least = np.broadcast_to(np.asarray(thresholds, np.float32), len(row))
        each = zip(row, least, truth, strict=True)
        right += all((score >= t) == bool(y) for score, t, y in each)
    return right / len(scores)


def scores_of(dev: DevSet, seed: int, shifts=(0, 0, 0)) -> list[NDArray]:
    """Return the scores that a fresh network gives single and joined documents."""
    stub = network(seed, shifts)
    assert dev.joined is not None
    return [stub.score(dev.dev.documents), stub.score(dev.joined.documents)]


@pytest.mark.parametrize("calibrate_on", ["joined", "single+joined"])
def test_the_threshold_is_best_on_the_documents_asked_for(calibrate_on: str) -> None:
    dev = DevSet(config(calibrate_on=calibrate_on, joined_share=0.2), singles())
    assert dev.joined is not None
    found = dev.calibrate(network(7))
    parts = scores_of(dev, 7)
    truths = [dev.dev.targets, dev.joined.targets]
    values = [
        exact(scores, found["threshold"], truth)
        for scores, truth in zip(parts, truths, strict=True)
    ]
    assert found["value_single"] == pytest.approx(values[0])
    assert found["value_joined"] == pytest.approx(values[1])
    used = slice(1, 2) if calibrate_on == "joined" else slice(0, 2)
    scores, targets = np.concatenate(parts[used]), np.concatenate(truths[used])
    assert found["value"] == pytest.approx(np.mean(values[used]))  # as many of each
    candidates = [exact(scores, t, targets) for t in np.unique(scores)[1::5]]
    assert found["value"] >= max(candidates) - 0.02  # the search looks at 400 of them
    assert found["documents"] == len(scores)
    expected = {
        "joined": "joined dev documents",
        "single+joined": "single and joined dev documents",
    }
    assert found["on"] == expected[calibrate_on]


def test_single_documents_raise_a_threshold_that_joined_ones_leave_low() -> None:
    both, alone = (
        DevSet(config(calibrate_on=each), singles()).calibrate(network(7))
        for each in ("single+joined", "joined")
    )
    assert both["value_single"] >= alone["value_single"]
    assert both["value_joined"] <= alone["value_joined"]


@pytest.mark.parametrize("joined_by", ["texts", "labels"])
def test_dev_documents_are_joined_by_texts_or_by_labels(joined_by: str) -> None:
    labels = np.repeat([0, 1, 2], [80, 5, 5])
    targets = np.eye(N_LABELS, dtype=np.float32)[labels]
    uneven = Encoded([np.full(10, label) for label in labels], targets)
    dev = DevSet(config(joined_by=joined_by), uneven)
    assert dev.joined is not None
    pairs = joined_pairs(targets, 90, RunConfig().data.split_seed, by=joined_by)
    expected = targets[pairs[:, 0]] + targets[pairs[:, 1]]
    assert dev.joined.targets.tolist() == expected.tolist()
    counts = dev.joined.targets.sum(0)
    if joined_by == "texts":
        assert counts[0] > 85 > 4 * counts[1:].max() / 3
    else:  # 60 each on average, with a deviation of 4.5: five deviations either way
        assert all(37 < count < 83 for count in counts)


def test_every_document_is_scored_once_per_epoch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for select, many, asked in (
        ("joined", 0, [90, 90]),
        ("accuracy", 90, [90, 90]),  # so few that two epochs may be equally good
        ("accuracy", 89, [90]),
        ("last", 89, [90]),
    ):
        stub = network()
        monkeypatch.setattr(selection, "MANY_TEXTS", many)
        figures = DevSet(config(select=select), singles()).judge(stub)
        assert stub.asked == asked
        assert ("dev_exact_match" in figures) == (select == "joined")


def test_an_epoch_tells_of_both_kinds_of_documents() -> None:
    dev = DevSet(config(), singles())
    figures, chosen = dev.judge(network(3)), dev.calibrate(network(3))
    assert figures["dev_score"] == figures["dev_exact_match"] == chosen["value"]
    assert figures["dev_exact_match_single"] == chosen["value_single"]
    assert figures["dev_exact_match_joined"] == chosen["value_joined"]
    assert figures["dev_threshold"] == chosen["threshold"]
    top = network(3).score(dev.dev.documents).argmax(1)
    expected = np.mean(top == dev.dev.targets.argmax(1))
    assert figures["dev_accuracy"] == pytest.approx(expected)
    stub, losses = network(3), []  # as asked there, the single ones first
    assert dev.joined is not None
    for documents, truth in (dev.dev, dev.joined):
        p = stub.score(documents).astype(float)
        losses += (-np.where(truth > 0, np.log(p), np.log(1 - p)).sum(1)).tolist()
    assert figures["dev_loss"] == pytest.approx(np.mean(losses))


@pytest.mark.parametrize("calibrate_on", ["joined", "single+joined"])
def test_dev_documents_of_several_labels_are_taken_as_they_are(
    calibrate_on: str,
) -> None:
    documents, targets = singles(30)
    documents += [np.array([0, 0, 2, 2])] * 10
    targets = np.concatenate([targets, [[1, 0, 1]] * 10]).astype(np.float32)
    dev = DevSet(config(calibrate_on=calibrate_on), Encoded(documents, targets))
    stub = network(5)
    found = dev.calibrate(stub)
    assert stub.asked == [40]
    assert (found["on"], found["documents"]) == ("dev documents", 40)
    scores = network(5).score(documents)
    for name, rows in (("single", slice(30)), ("several", slice(30, None))):
        expected = exact(scores[rows], found["threshold"], targets[rows])
        assert found[f"value_{name}"] == pytest.approx(expected)
    assert found["value"] == pytest.approx(exact(scores, found["threshold"], targets))
    assert "value_joined" not in found


@pytest.mark.parametrize("thresholds", ["one", "per-label"])
def test_documents_of_one_label_calibrate_nothing(thresholds: str) -> None:
    one = Encoded(
        [np.zeros(3, dtype=int)] * 5, np.eye(N_LABELS, dtype=np.float32)[[0] * 5]
    )
    found = DevSet(config(thresholds=thresholds), one).calibrate(network())
    assert found == {"threshold": 0.5, "value": 0.0, "documents": 0, "on": "nothing"}


def test_thresholds_per_label_follow_the_scores_of_each() -> None:
    shifts = (0, 3, -3)
    options = config(thresholds="per-label", joined_share=0.5)
    dev = DevSet(options, singles(300))
    found = dev.calibrate(network(7, shifts))
    first, second, third = found["thresholds"]
    assert third < first < second
    parts = scores_of(dev, 7, shifts)
    assert dev.joined is not None
    values = [
        exact(scores, found["thresholds"], truth)
        for scores, truth in zip(
            parts, [dev.dev.targets, dev.joined.targets], strict=True
        )
    ]
    assert [found["value_single"], found["value_joined"]] == pytest.approx(values)
    one = DevSet(config(joined_share=0.5), singles(300)).calibrate(network(7, shifts))
    assert "thresholds" not in one
    assert found["value"] > one["value"] + 0.1
