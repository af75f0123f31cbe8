"""Thresholds from reviewed texts, against a general optimiser and known truths."""

import numpy as np
import pytest
from scipy.optimize import minimize

from textcapsules.training.calibrate import (
    SLOPE_RIDGE,
    fit_shifts,
    judge_decisions,
    logit,
    reviewed_thresholds,
    sigmoid,
)


def drawn(n: int, *, shift: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return scores and labels whose true threshold is `shift` above 0.5, in logits."""
    random = np.random.default_rng(seed)
    z = random.normal(0, 2, (n, 4))
    truth = random.random(z.shape) < sigmoid(3 * (z - shift))
    return sigmoid(z), truth


@pytest.mark.parametrize("seed", range(4))
def test_fit_is_the_minimum(seed: int) -> None:
    scores, truth = drawn(12, shift=1.0, seed=seed)
    x, pull, label_pull = logit(scores), 0.3, 0.7
    weights = np.where(truth.sum(1, keepdims=True) > 1, 2.0, 1.0)

    def loss(at: np.ndarray) -> float:
        p = np.clip(1 / (1 + np.exp(-(at[0] * x + at[1] + at[2:]))), 1e-12, 1 - 1e-12)
        each = truth * np.log(p) + (1 - truth) * np.log(1 - p)
        misfit = -(weights * each).sum()
        own = label_pull * (at[2:] ** 2).sum()
        return misfit + pull * at[1] ** 2 + own + SLOPE_RIDGE * (at[0] - 1) ** 2

    found = minimize(loss, np.array([1.0, 0, 0, 0, 0, 0]), tol=1e-10)
    slope, shifts = fit_shifts(x, truth, weights, pull, label_pull)
    assert slope == pytest.approx(found.x[0], rel=1e-3)
    assert shifts == pytest.approx(found.x[1] + found.x[2:], abs=1e-3)


def test_many_texts_say_where_the_threshold_is() -> None:
    scores, truth = drawn(5000, shift=1.0)
    fitted = reviewed_thresholds(scores, truth, [0.5] * 4)
    assert logit(fitted) == pytest.approx(np.ones(4), abs=0.15)


def test_twenty_texts_are_better_than_a_wrong_threshold() -> None:
    scores, truth = drawn(2000, shift=1.0, seed=1)
    before = np.full(4, 0.5)
    gains = [
        judge_decisions(
            scores, truth, reviewed_thresholds(scores[rows], truth[rows], before)
        )
        - judge_decisions(scores, truth, before)
        for rows in np.arange(200).reshape(10, 20)
    ]
    assert np.mean(gains) > 0.1
    assert min(gains) > 0


def test_a_strong_pull_keeps_the_present_thresholds() -> None:
    scores, truth = drawn(20, shift=1.0)
    before = np.array([0.3, 0.4, 0.5, 0.6])
    kept = reviewed_thresholds(scores, truth, before, pull=1e9, label_pull=1e9)
    assert kept == pytest.approx(before, abs=1e-6)


def test_a_label_without_texts_follows_the_others() -> None:
    scores, truth = drawn(60, shift=1.0)
    scores[:, 3], truth[:, 3] = 0.001, False  # never near its threshold
    fitted = logit(reviewed_thresholds(scores, truth, [0.5] * 4))
    assert fitted[:3].min() > 0.5
    assert fitted[3] > 0.4


def test_texts_without_labels_count() -> None:
    scores = np.full((10, 3), 0.6)
    fitted = reviewed_thresholds(scores, np.zeros((10, 3), bool), [0.5] * 3)
    assert (fitted > 0.6).all()


def test_scores_that_mislead_change_nothing() -> None:
    scores, truth = drawn(50, shift=0.0)
    before = [0.2, 0.3, 0.4, 0.5]
    assert reviewed_thresholds(scores, ~truth, before).tolist() == before


def test_no_text_changes_nothing() -> None:
    empty = np.zeros((0, 3))
    assert reviewed_thresholds(empty, empty, [0.2, 0.3, 0.4]).tolist() == [
        0.2,
        0.3,
        0.4,
    ]
