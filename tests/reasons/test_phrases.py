import numpy as np
import pytest

from textcapsules.reasons.phrases import cut_phrases, pick_phrases
from textcapsules.reasons.strengths import NgramStrengths


def greedy(ngrams, n_tokens, row, label, top, min_share):
    """Pick as the module says, one candidate after the other."""
    found = []
    for place, each in enumerate(ngrams):
        for p, value in enumerate(each.values[row, :, label]):
            start = each.first + p * each.stride
            end = start + each.size
            if each.first < 0:
                said = range(max(start, 0), min(end, n_tokens))
            elif end <= n_tokens or p == 0:
                said = range(start, min(end, n_tokens))
            else:
                said = range(0)
            if value > 0 and said:
                found.append((-float(value), place, said.start, said.stop))
    found.sort()
    floor = min_share * -found[0][0] if found else 0
    picked = []
    for negative, _, start, end in found:
        apart = all(end <= s or e <= start for s, e, _ in picked)
        if apart and -negative >= floor and len(picked) < top:
            picked.append((start, end, -negative))
    return picked


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("min_share", [0.0, 0.5])
@pytest.mark.parametrize("edges", [False, True])
def test_phrases_are_picked_greedily_and_apart(stride, min_share, edges):
    random = np.random.default_rng(0)
    n_tokens = np.array([12, 7, 2, 1, 0])
    ngrams = [
        NgramStrengths(
            size,
            stride,
            random.normal(size=(5, (12 + 2 * edge - size) // stride + 1, 3)).astype(
                np.float32
            ),
            -edge,
        )
        for size in (1, 3, 4)
        for edge in [size - 1 if edges else 0]
    ]
    picked = pick_phrases(ngrams, n_tokens, 4, min_share)
    for row in range(5):
        for label in range(3):
            expected = greedy(ngrams, n_tokens[row], row, label, 4, min_share)
            columns = (part[row, label] for part in picked[:3])
            found = [
                (start, end, strength)
                for start, end, strength in zip(*columns, strict=True)
                if strength > 0
            ]
            assert found == expected


def test_shifts_of_a_phrase_are_not_listed():
    values = np.array([0.1, 0.8, 1.0, 0.9, 0.1, 0.7, 0.2], np.float32)
    ngrams = [NgramStrengths(3, 1, values.reshape(1, -1, 1))]
    picked = pick_phrases(ngrams, np.array([9]), top=10, min_share=0.5)
    assert picked.starts.tolist() == [[[2, 5]]]
    assert picked.ends.tolist() == [[[5, 8]]]


def test_nothing_is_listed_where_nothing_speaks_for_the_label():
    values = np.array([-1.0, -0.5, 0.0], np.float32).reshape(1, 3, 1)
    picked = pick_phrases([NgramStrengths(1, 1, values)], np.array([3]), top=3)
    assert cut_phrases("a b c", [(0, 1), (2, 3), (4, 5)], picked, 0, 0) == ()


def test_phrases_are_cut_from_first_to_last_token():
    values = np.array([[0.0, 1.0, 0.0, 0.6], [9.0, 0.0, 0.0, 0.0]], np.float32)
    ngrams = [NgramStrengths(2, 1, values.reshape(2, 4, 1))]
    picked = pick_phrases(ngrams, np.array([5, 5]), top=3)
    places = [(0, 1), (2, 4), (5, 6), (6, 7), (8, 9)]
    found = cut_phrases("a bb c! d", places, picked, 0, 0)
    assert [phrase[:3] for phrase in found] == [("bb c", 2, 6), ("! d", 6, 9)]
    assert [phrase[3:] for phrase in found] == [(1.0, 2), (pytest.approx(0.6), 2)]
