"""The calibration curve against scikit-learn's, and by hand."""

import numpy as np
import pytest
from sklearn.calibration import calibration_curve

from textcapsules.inference.reliability import Bin, reliability


def test_the_curve_is_that_of_scikit_learn() -> None:
    random = np.random.default_rng(0)
    scores = random.random((400, 3))
    targets = random.random((400, 3)) < scores**2
    found = reliability(scores, targets)
    shares, means = calibration_curve(targets.ravel(), scores.ravel(), n_bins=10)
    np.testing.assert_allclose([each.share for each in found.bins], shares)
    np.testing.assert_allclose([each.score for each in found.bins], means)
    assert sum(each.pairs for each in found.bins) == 1200


def test_bins_and_error_by_hand() -> None:
    scores = np.array([[0.0, 1.0], [0.04, 0.96]])
    targets = np.array([[0, 1], [1, 1]])
    found = reliability(scores, targets)
    assert [each._replace(score=round(each.score, 6)) for each in found.bins] == [
        Bin(0.0, 0.1, 2, 0.02, 0.5),
        Bin(0.9, 1.0, 2, 0.98, 1.0),
    ]
    assert found.error == pytest.approx((2 * 0.48 + 2 * 0.02) / 4)


def test_scores_that_are_probabilities_lie_on_the_diagonal() -> None:
    random = np.random.default_rng(1)
    scores = random.random((20_000, 2))
    found = reliability(scores, random.random((20_000, 2)) < scores)
    assert found.error < 0.02
