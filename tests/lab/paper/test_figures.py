"""Against figures worked out by hand."""

import math

import numpy as np
import pytest

from textcapsules.lab.paper.figures import mcnemar, mean, paired_t, unpack
from textcapsules.lab.paper.runs import bits


def test_mean_and_sample_deviation():
    found = mean([2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0])
    assert found is not None
    assert found.value == 5.0
    assert found.spread == pytest.approx(math.sqrt(32 / 7))
    assert found.runs == 8


def test_mean_of_one_has_no_spread_and_of_none_is_none():
    found = mean([0.5])
    assert found is not None
    assert math.isnan(found.spread)
    assert mean([]) is None


def test_paired_t_by_hand():
    # Differences 1, 2, 3: t = 2 / (1 / sqrt 3), two degrees of freedom, for which
    # the distribution has a closed form: p = 1 - t / sqrt(t^2 + 2).
    t = 2 * math.sqrt(3)
    p = paired_t([81.0, 84.0, 83.0], [80.0, 82.0, 80.0])
    assert p == pytest.approx(1 - t / math.sqrt(t * t + 2))


def test_paired_t_without_anything_to_judge_by():
    assert math.isnan(paired_t([0.8], [0.7]))
    assert math.isnan(paired_t([], []))
    assert paired_t([0.8, 0.9], [0.8, 0.9]) == 1.0
    assert math.isnan(paired_t([3.0, 5.0], [2.0, 4.0]))


def test_mcnemar_by_hand():
    # 6 texts only ours has right, 1 only theirs: 2 (1 + 7) / 2^7.
    ours = np.array([1] * 6 + [0] + [1] * 5 + [0] * 3, dtype=bool)
    theirs = np.array([0] * 6 + [1] + [1] * 5 + [0] * 3, dtype=bool)
    assert mcnemar(ours, theirs) == pytest.approx(16 / 128)
    assert mcnemar(theirs, ours) == pytest.approx(16 / 128)
    assert mcnemar(ours, ours) == 1.0


@pytest.mark.parametrize("texts", [0, 1, 7, 8, 9, 1000])
def test_bits_survive(texts):
    right = np.random.default_rng(texts).random(texts) < 0.5
    packed = bits(right)
    assert len(packed) == 2 * math.ceil(texts / 8)
    assert unpack(packed, texts).tolist() == right.tolist()
