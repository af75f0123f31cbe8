"""Thresholds against brute force and scikit-learn."""

import math
import typing

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from textcapsules.config import TrainConfig
from textcapsules.training import calibrate
from textcapsules.training.calibrate import (
    best_threshold,
    common_threshold,
    fit_biases,
    label_thresholds,
)


def objective_by_hand(predicted: np.ndarray, targets: np.ndarray, name: str) -> float:
    """Count one text and one class at a time."""
    exact = hits = given = asked = 0
    for guess, truth in zip(predicted.tolist(), targets.tolist(), strict=True):
        exact += guess == [bool(t) for t in truth]
        hits += sum(g and bool(t) for g, t in zip(guess, truth, strict=True))
        given, asked = given + sum(guess), asked + sum(truth)
    if name == "exact-match":
        return exact / len(targets)
    return 2 * hits / (given + asked) if given + asked else 0.0


N_CLASSES = 3
grid_scores = st.lists(  # few levels, so that ties are common
    st.lists(st.integers(0, 12), min_size=N_CLASSES, max_size=N_CLASSES), min_size=1
)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["exact-match", "micro-f1"])
@given(levels=grid_scores, seed=st.integers(0, 99))
@settings(max_examples=120, deadline=None)
def test_threshold_is_as_good_as_any_that_parts_the_scores(
    name: str, levels: list, seed: int
) -> None:
    scores = np.array(levels) / 12
    targets = np.random.default_rng(seed).integers(0, 2, scores.shape)
    threshold, value = best_threshold(scores, targets, name)
    assert value == pytest.approx(objective_by_hand(scores >= threshold, targets, name))
    # "At least t" for every score t but the lowest covers all ways to part them.
    candidates = np.unique(scores)[1:]
    best = max(
        (objective_by_hand(scores >= t, targets, name) for t in candidates), default=0
    )
    if len(candidates):
        assert value == pytest.approx(best)
        assert scores.min() < threshold < scores.max()


def test_threshold_lies_midway_in_the_gap_that_separates() -> None:
    scores = np.array([[0.9, 0.2], [0.1, 0.8], [0.7, 0.3]])
    targets = np.array([[1, 0], [0, 1], [1, 0]])
    assert best_threshold(scores, targets) == (pytest.approx(0.5), 1.0)


def test_of_equally_good_thresholds_the_middle_is_taken() -> None:
    scores = np.array([[0.1, 0.8], [0.2, 0.3], [0.4, 0.6]])
    never = np.array([[1, 0]] * 3)  # no threshold is ever right: all are equal
    # Candidates 0.15, 0.25, 0.35, 0.5, 0.7.
    assert best_threshold(scores, never) == (pytest.approx(0.35), 0.0)
    refuse = np.array([[0, 1], [0, 0], [0, 0]])  # right at 0.7 alone
    assert best_threshold(scores, refuse) == (pytest.approx(0.7), 1.0)


def test_constant_scores_leave_the_threshold_at_a_half() -> None:
    targets = np.array([[1, 0], [1, 1]])
    assert best_threshold(np.full((2, 2), 0.2), targets) == (0.5, 0.0)
    assert best_threshold(np.full((2, 2), 0.7), targets) == (0.5, 0.5)
    assert best_threshold(np.full((2, 2), 0.7), targets, "micro-f1") == (
        0.5,
        pytest.approx(2 * 3 / (4 + 3)),
    )


@pytest.mark.parametrize("scores", [[[0.1, 0.9]], [[0.5, 0.5]]], ids=["two", "one"])
def test_unknown_objective_is_named(scores: list) -> None:
    message = "objective must be exact-match or micro-f1; got 'macro-f1'"
    with pytest.raises(ValueError, match=message):
        best_threshold(np.array(scores), np.array([[0, 1]]), "macro-f1")


def test_every_configured_objective_is_known() -> None:
    choices = typing.get_args(typing.get_type_hints(TrainConfig)["threshold_for"])
    assert set(choices) == set(calibrate.OBJECTIVES)


def test_every_configured_rule_is_known() -> None:
    choices = typing.get_args(typing.get_type_hints(TrainConfig)["thresholds"])
    assert set(choices) == set(calibrate.THRESHOLD_RULES)


def test_the_common_threshold_is_the_best_one_for_every_label() -> None:
    scores, targets = shifted_scores(100, [0.0, 1.0, 0.0])
    threshold, value = best_threshold(scores, targets, "micro-f1")
    chosen = common_threshold(scores, targets, "micro-f1")
    assert chosen.each.tolist() == [threshold] * 3
    assert (chosen.common, chosen.value) == (threshold, value)


def test_many_scores_are_searched_on_a_grid_that_is_fine_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(0)
    targets = rng.random((700, 3)) < 0.4
    noise = rng.normal(scale=0.15, size=targets.shape)
    scores = np.clip(np.where(targets, 0.7, 0.3) + noise, 0, 1)
    threshold, value = best_threshold(scores, targets)
    assert value == objective_by_hand(scores >= threshold, targets, "exact-match")
    monkeypatch.setattr(calibrate, "MAX_CANDIDATES", 10**6)
    _, exact = best_threshold(scores, targets)
    assert exact - 0.01 <= value <= exact  # 400 steps of 2,000 scores: a hair's breadth


def logits(scores: np.ndarray) -> np.ndarray:
    return np.log(scores) - np.log(1 - scores)


def shifted_scores(
    n_texts: int, shifts: list[float], seed: int = 0, share: float = 0.3
) -> tuple[np.ndarray, np.ndarray]:
    """Draw scores whose logits lie around 1 or -1, those of each label shifted."""
    rng = np.random.default_rng(seed)
    targets = rng.random((n_texts, len(shifts))) < share
    noise = rng.normal(size=targets.shape)
    return 1 / (1 + np.exp(-(np.where(targets, 1, -1) + noise + shifts))), targets


def stacked_regression(
    scores: np.ndarray, targets: np.ndarray
) -> tuple[float, np.ndarray]:
    """Fit scikit-learn's regression on one row per text and label."""
    n_texts, n_labels = scores.shape
    rows = np.zeros((n_texts, n_labels, 1 + n_labels))
    rows[:, :, 0] = logits(scores)
    rows[:, range(n_labels), range(1, n_labels + 1)] = 1  # which label it is
    model = LogisticRegression(C=1e8, fit_intercept=False, tol=1e-10, max_iter=10_000)
    model.fit(rows.reshape(-1, 1 + n_labels), targets.ravel())
    return float(model.coef_[0, 0]), model.coef_[0, 1:]


def test_without_a_penalty_the_fit_is_that_of_scikit_learn() -> None:
    scores, targets = shifted_scores(500, [0.0, 1.5, -2.0])
    slope, biases = fit_biases(logits(scores), targets, 0.0)
    expected, offsets = stacked_regression(scores, targets)
    assert slope == pytest.approx(expected, rel=1e-3)
    np.testing.assert_allclose(biases, offsets, atol=2e-3)
    # Thresholds are where the regression passes one cut for all labels.
    found = label_thresholds(scores, targets, ridge=0.0)
    cuts = expected * logits(found.each) + offsets
    np.testing.assert_allclose(cuts, cuts[0], atol=1e-2)


def penalised(at: np.ndarray, z: np.ndarray, y: np.ndarray, ridge: float) -> float:
    """Add the loss up, one text and label at a time."""
    slope, biases = at[0], at[1:]
    total = sum(ridge * (bias - biases.mean()) ** 2 for bias in biases)
    for row, truths in zip(z, y, strict=True):
        for value, truth, bias in zip(row, truths, biases, strict=True):
            p = 1 / (1 + math.exp(-(slope * value + bias)))
            total -= math.log(p if truth else 1 - p)
    return float(total)


@pytest.mark.parametrize("ridge", [0.3, 5.0, 200.0])
def test_no_step_from_the_fit_lowers_the_penalised_loss(ridge: float) -> None:
    scores, targets = shifted_scores(60, [0.0, 1.5, -2.0])
    z = logits(scores)
    slope, biases = fit_biases(z, targets, ridge)
    at = np.array([slope, *biases])
    least = penalised(at, z, targets, ridge)
    for step in np.random.default_rng(0).normal(scale=0.05, size=(30, 4)):
        assert penalised(at + step, z, targets, ridge) > least


def test_a_heavy_penalty_gives_the_one_threshold() -> None:
    scores, targets = shifted_scores(300, [0.0, 1.5, -2.0])
    one, value = best_threshold(scores, targets)
    found = label_thresholds(scores, targets, ridge=1e9)
    # In the same gap between scores: the same decisions.
    assert (found.each == found.each[0]).all()
    assert ((scores >= found.each) == (scores >= one)).all()
    assert found.common == pytest.approx(found.each[0])
    assert found.value == pytest.approx(value)


def test_scores_that_are_shifted_move_their_threshold_by_as_much() -> None:
    shifts = np.array([0.0, 1.5, -2.0])
    plain, targets = shifted_scores(400, [0.0, 0.0, 0.0])
    moved, _ = shifted_scores(400, shifts.tolist())
    before = label_thresholds(plain, targets, ridge=0.0)
    after = label_thresholds(moved, targets, ridge=0.0)
    own = stacked_regression(plain, targets)
    # One threshold may do as well where nothing is shifted: compare with the fit.
    cut = own[0] * logits(after.each) - own[0] * shifts + own[1]
    np.testing.assert_allclose(cut, cut[0], atol=1e-2)
    assert after.value >= before.value
    _, reached = best_threshold(moved, targets)
    assert after.value > reached + 0.1
    assert objective_by_hand(
        moved >= after.each, targets, "exact-match"
    ) == pytest.approx(after.value)


def test_a_label_with_few_texts_stays_near_the_others() -> None:
    # Scores are honest odds, but two logits too low for the last two labels, of which
    # one is common and one is rare.
    rng = np.random.default_rng(0)
    means = np.array([-1.0, -1.0, -1.0, -1.0, -1.0, -7.0])
    biases = np.array([0.0, 0.0, 0.0, 0.0, 2.0, 2.0])
    z = means + 1.5 * rng.normal(size=(600, 6))
    targets = rng.random(z.shape) < 1 / (1 + np.exp(-(z + biases)))
    assert targets[:, 4].sum() > 300
    assert 1 < targets[:, 5].sum() < 10
    ridge = calibrate.default_ridge(z, targets)
    free, drawn = (fit_biases(z, targets, each)[1] for each in (0.0, ridge))
    mean = drawn.mean()
    way = (drawn[4:] - mean) / (free[4:] - mean)  # 1: all the way to its own
    assert way[0] > 0.8
    assert 0 < way[1] < 0.5


def test_twenty_texts_bring_a_label_half_way() -> None:
    # Labels that differ in nothing but the shift, of as many positives each.
    n_texts, n_labels = 20 * 10, 30
    rng = np.random.default_rng(3)
    targets = np.stack([rng.permutation(n_texts) < 20 for _ in range(n_labels)], axis=1)
    shifts = np.tile([0.4, -0.4], n_labels // 2)
    noise = rng.normal(size=targets.shape)
    z = np.where(targets, 1, -1) + noise + shifts
    free, drawn = (
        fit_biases(z, targets, ridge)[1]
        for ridge in (0.0, calibrate.default_ridge(z, targets))
    )
    spread = np.std(drawn) / np.std(free)
    assert 0.4 < spread < 0.6


def test_a_label_without_a_text_has_the_mean() -> None:
    scores, targets = shifted_scores(400, [0.0, 1.5, -2.0, 0.0])
    targets[:, 3] = False
    found = label_thresholds(scores, targets, ridge=0.0)
    slope, biases = stacked_regression(scores[:, :3], targets[:, :3])
    cut = slope * logits(found.each[:3]) + biases  # thrice the same
    mean = (cut[0] - biases.mean()) / slope
    assert logits(found.each[3]) == pytest.approx(mean, abs=1e-2)
    assert found.common == found.each[3]


@pytest.mark.parametrize("name", ["exact-match", "micro-f1"])
def test_thresholds_per_label_are_never_worse_than_one(name: str) -> None:
    for seed in range(10):
        shifts = np.random.default_rng(seed).normal(size=4).tolist()
        drawn, targets = shifted_scores(50, shifts, seed)
        scores = drawn.astype(np.float32)  # as a network's
        found = label_thresholds(scores, targets, name)
        assert found.value >= best_threshold(scores, targets, name)[1]
        by_hand = objective_by_hand(
            scores >= found.each.astype(np.float32), targets, name
        )
        assert found.value == pytest.approx(by_hand)


@pytest.mark.parametrize(
    "scores",
    [
        [[0.9, 0.1], [0.2, 0.8], [0.7, 0.1]],  # told apart without error
        [[0.1, 0.9], [0.8, 0.2], [0.1, 0.7]],  # a high score speaks against
        [[0.5, 0.5], [0.5, 0.5], [0.5, 0.5]],
        [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]],
    ],
    ids=["apart", "backwards", "constant", "extreme"],
)
def test_where_there_is_nothing_to_fit_labels_share_a_threshold(scores: list) -> None:
    targets = np.array([[1, 0], [0, 1], [1, 0]])
    found = label_thresholds(np.array(scores), targets)
    threshold, value = best_threshold(np.array(scores), targets)
    assert found.each.tolist() == [threshold] * 2
    assert (found.common, found.value) == (threshold, value)
    none = label_thresholds(np.array(scores), np.zeros((3, 2)))
    assert len(set(none.each.tolist())) == 1
