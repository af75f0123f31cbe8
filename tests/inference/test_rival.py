"""Two systems on the same texts: counts, and the probability of so uneven ones."""

from math import comb

import numpy as np
import pytest

from textcapsules.inference.evaluate import evaluate_scores
from textcapsules.inference.rival import Comparison, sign_test


@pytest.mark.parametrize(("wins", "losses"), [(0, 4), (3, 9), (9, 3), (7, 7), (1, 0)])
def test_sign_test_adds_up_the_tails_of_a_fair_coin(wins: int, losses: int) -> None:
    total, few = wins + losses, min(wins, losses)
    tail = sum(comb(total, k) for k in range(few + 1)) / 2**total
    assert sign_test(wins, losses) == pytest.approx(min(1.0, 2 * tail))


def test_no_difference_at_all_is_chance() -> None:
    assert sign_test(0, 0) == 1.0


def test_only_texts_that_one_alone_got_right_count() -> None:
    scores = np.array([[1.0, 0.0]] * 4)
    evaluation = evaluate_scores(scores, scores, ["a", "b"], 0.5, several=False)
    model = np.array([True, True, False, True])
    rival = np.array([True, False, True, False])
    found = Comparison.of(evaluation, model, rival, "rival")
    assert (found.only_model, found.only_rival) == (2, 1)
    assert found.chance == 1.0
    assert found.to_dict()["evaluation"]["texts"] == 4
