"""Which of the tried phrases are shown, and what is left of a text without them."""

import numpy as np
import pytest

from textcapsules.reasons.trials import choose_places, delete_places, neighbours


def chosen(places, falls, top=5, **options):
    found = choose_places(places, np.array(falls, np.float32), top, **options)
    return [(each.place, round(each.fall, 3)) for each in found]


def test_the_shortest_of_overlapping_phrases_stands_for_them_if_it_is_worth_enough():
    places = [(0, 20), (4, 9), (4, 6), (30, 33)]
    assert chosen(places, [0.5, 0.45, 0.2, 0.3]) == [((4, 9), 0.45), ((30, 33), 0.3)]
    assert chosen(places, [0.5, 0.2, 0.2, 0.3]) == [((0, 20), 0.5), ((30, 33), 0.3)]


def test_what_a_score_does_not_fall_without_is_no_reason():
    places = [(0, 3), (4, 9), (10, 12)]
    assert chosen(places, [-0.2, 0.0, -0.1]) == []
    assert chosen(places, [-0.2, 0.0, -0.1], least=0.0) == []
    assert chosen(places, [0.001, 0.0, -0.1]) == []
    assert chosen(places, [0.001, 0.0, -0.1], least=0.0) == [((0, 3), 0.001)]
    assert chosen([], []) == []


def test_much_weaker_phrases_are_left_out_and_the_number_is_bounded():
    places = [(n, n + 1) for n in range(6)]
    falls = [0.1, 0.8, 0.5, 0.4, 0.3, 0.11]
    assert [fall for _, fall in chosen(places, falls)] == [0.8, 0.5, 0.4, 0.3]
    assert [fall for _, fall in chosen(places, falls, top=2)] == [0.8, 0.5]


def test_one_phrase_speaks_for_a_sentence_that_it_explains():
    places, falls = [(0, 5), (8, 12), (20, 25)], [0.5, 0.4, 0.3]
    whole = {(0, 15): 0.9, (18, 30): 0.3}
    found = [place for place, _ in chosen(places, falls, sentences=whole)]
    assert found == [(0, 5), (20, 25)]
    # Where the sentence is worth far more than its first phrase, others are named too.
    whole[0, 15] = 3.0
    assert len(chosen(places, falls, sentences=whole)) == 3


@pytest.mark.parametrize(
    ("places", "left"),
    [
        ([(0, 3)], [" two six"]),
        ([(4, 7), (0, 3)], ["six"]),
        ([(0, 5), (3, 7)], ["six"]),
        ([], ["one two six"]),
        ([(3, 4)], ["one two six"]),
    ],
)
def test_deleted_places_leave_the_other_words_apart(places, left):
    assert delete_places("one two six", places).split() == left[0].split()


def test_neighbours_are_joined_over_a_word_and_never_over_a_stop():
    text = "charged my card twice. It crashes"
    assert list(neighbours([(11, 15), (0, 7)], text)) == [(0, 15)]
    assert list(neighbours([(16, 21), (23, 25)], text)) == []
    text = "slow, and late"
    assert list(neighbours([(0, 4), (10, 14)], text)) == []
