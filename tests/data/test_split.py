from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from textcapsules.base.errors import ConfigError
from textcapsules.data.split import folds, hold_out

LABELS = st.lists(st.sampled_from("abcd"), min_size=2, max_size=200)


@given(LABELS, st.floats(0.01, 0.99), st.integers(0, 5))
def test_hold_out_neither_loses_nor_repeats(labels, fraction, seed):
    kept, held = hold_out(labels, fraction, seed)
    assert sorted([*kept, *held]) == list(range(len(labels)))
    assert len(kept) >= 1 and len(held) >= 1
    assert kept.tolist() == sorted(kept) and held.tolist() == sorted(held)


@given(LABELS, st.integers(0, 5))
def test_hold_out_gives_each_class_its_share(labels, seed):
    _, held = hold_out(labels, 0.5, seed)
    taken, there = Counter(labels[index] for index in held), Counter(labels)
    share = len(held) / len(labels)
    # Evenly spaced places in a stretch of m examples: within one of m times the share.
    assert all(abs(taken[name] - there[name] * share) <= 1 for name in there)


@pytest.mark.parametrize(
    ("n_examples", "n_held"),
    [(5_502, 550), (5_452, 545), (9_596, 960), (2, 1), (15, 2)],
)
def test_hold_out_rounds_to_the_nearest_count(n_examples, n_held):
    kept, held = hold_out(n_examples, 0.1, seed=0)
    assert (len(kept), len(held)) == (n_examples - n_held, n_held)


def test_hold_out_follows_the_seed():
    first, again, other = (hold_out(100, 0.1, seed)[1].tolist() for seed in (1, 1, 2))
    assert first == again != other


def test_splits_are_these_on_every_platform():
    # Fixed numbers: a change of numpy that moved them would change every result.
    assert hold_out(20, 0.2, seed=0)[1].tolist() == [7, 13, 16, 19]
    assert folds(["a", "b"] * 5, seed=0, n_folds=5).tolist() == [
        3, 1, 0, 0, 4, 3, 2, 2, 1, 4,
    ]  # fmt: skip


@given(LABELS.filter(lambda labels: len(labels) >= 10), st.integers(0, 5))
def test_folds_are_even_in_size_and_class(labels, seed):
    numbers = folds(labels, seed)
    sizes = np.bincount(numbers, minlength=10)
    assert sizes.sum() == len(labels) and sizes.max() - sizes.min() <= 1
    for name in set(labels):
        of_class = numbers[[label == name for label in labels]]
        counts = np.bincount(of_class, minlength=10)
        assert counts.max() - counts.min() <= 1


@pytest.mark.parametrize("fraction", [0, 1, -0.1, 1.5, float("nan")])
def test_hold_out_refuses_a_share_out_of_range(fraction):
    with pytest.raises(ConfigError, match=rf"fraction must be .* got {fraction}"):
        hold_out(10, fraction, seed=0)


def test_hold_out_refuses_a_single_example():
    with pytest.raises(ConfigError, match=r"examples must be at least 2.* got 1"):
        hold_out(["a"], 0.5, seed=0)


@pytest.mark.parametrize("n_folds", [1, 11])
def test_folds_refuse_a_number_that_cannot_be(n_folds):
    with pytest.raises(ConfigError, match=rf"n_folds must be .* 10; got {n_folds}"):
        folds(10, seed=0, n_folds=n_folds)


def test_negative_seed_is_refused():
    with pytest.raises(ConfigError, match="seed must be at least 0; got -1"):
        hold_out(10, 0.1, seed=-1)
