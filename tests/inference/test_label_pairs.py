"""Pairs of labels against counts by hand."""

from itertools import combinations

import numpy as np

from textcapsules.inference.label_pairs import MixUp, co_occurrence, mix_ups


def test_mix_ups_by_hand() -> None:
    names = ["a", "b", "c"]
    true = np.array([[1, 0, 0], [1, 0, 0], [1, 1, 0], [0, 0, 1], [0, 1, 0]])
    chosen = np.array([[0, 1, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0], [0, 1, 0]])
    assert mix_ups(chosen.astype(bool), true, names) == (
        MixUp("a", "b", 2),
        MixUp("a", "c", 1),
        MixUp("b", "c", 1),
    )


def test_co_occurrence_counts_pairs_of_labels_in_a_text() -> None:
    given = np.random.default_rng(0).random((50, 4)) < 0.4
    found = co_occurrence(given)
    expected = dict.fromkeys(combinations(range(4), 2), 0)
    for row in given:
        for pair in combinations(np.flatnonzero(row).tolist(), 2):
            expected[pair] += 1
    assert {pair: found[pair] for pair in expected} == expected
    np.testing.assert_array_equal(found, found.T)
    np.testing.assert_array_equal(np.diag(found), given.sum(0))
