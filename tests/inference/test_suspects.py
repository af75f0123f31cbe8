"""Labels that look wrong: planted errors are found, and counted as the paper counts."""

import numpy as np
import pytest

from textcapsules.base.errors import ConfigError, InputError
from textcapsules.inference.suspects import n_wrong, suspect_labels
from toy import tiny_config, toy_rows

ROWS = toy_rows(150)
TEXTS = [text for text, _ in ROWS]
TRUTH = [label for _, label in ROWS]
FLIPPED = {4: "birds", 33: "dogs", 71: "birds", 102: "cats", 140: "birds"}
LABELS = [FLIPPED.get(row, label) for row, label in enumerate(TRUTH)]


def test_planted_errors_are_listed_with_their_true_labels() -> None:
    assert all(FLIPPED[row] != TRUTH[row] for row in FLIPPED)
    suspects = suspect_labels(TEXTS, LABELS, seed=3)
    rows = {each.row for each in suspects}
    assert rows <= set(FLIPPED)
    assert len(rows) >= 4  # how many are wrong is an estimate
    for each in suspects:
        assert each.text == TEXTS[each.row]
        assert (each.label, each.suggested) == (FLIPPED[each.row], TRUTH[each.row])
    margins = [each.confidence for each in suspects]
    assert margins == sorted(margins, reverse=True)
    assert 0 < min(margins) < max(margins) <= 1


def test_right_labels_are_not_suspect() -> None:
    assert suspect_labels(TEXTS, TRUTH) == ()


def test_label_with_fewer_texts_than_folds_is_not_judged() -> None:
    rare = [*LABELS[:-1], "newts"]  # of a text about one of the topics
    assert "newts" not in {each.label for each in suspect_labels(TEXTS, rare)}


def test_another_system_may_judge() -> None:
    config = tiny_config("unused.csv", model={"architecture": "tfidf-svm"})
    suspects = suspect_labels(TEXTS, LABELS, folds=2, config=config)
    assert {each.row for each in suspects[:3]} <= set(FLIPPED)
    assert suspects[0].suggested == TRUTH[suspects[0].row]


def test_number_of_wrong_labels_is_the_off_diagonal_of_the_confident_joint() -> None:
    rng = np.random.default_rng(0)
    classes = rng.integers(0, 4, 300)
    shares = rng.dirichlet(np.ones(4), 300)
    shares[np.arange(300), classes] += 0.3
    shares /= shares.sum(1, keepdims=True)
    limits = [shares[classes == j, j].mean() for j in range(4)]
    expected = 0.0
    for given in range(4):
        counted = []
        for row in np.flatnonzero(classes == given):
            sure = [j for j in range(4) if shares[row, j] >= limits[j]]
            if sure:
                counted.append(max(sure, key=lambda j, row=row: shares[row, j]))
        wrong = sum(j != given for j in counted)
        expected += (classes == given).sum() * wrong / len(counted)
    assert n_wrong(shares, classes) == round(expected) > 10


def test_faults_are_refused() -> None:
    with pytest.raises(InputError, match="as many as texts, 150; got 149"):
        suspect_labels(TEXTS, LABELS[1:])
    with pytest.raises(InputError, match="at least two different ones"):
        suspect_labels(TEXTS, ["same"] * 150)
    with pytest.raises(ConfigError, match="folds must be from 2"):
        suspect_labels(TEXTS, LABELS, folds=1)
