import re

import numpy as np
import pytest

from textcapsules.reasons.phrases import joints, pick_phrases, propose_phrases, tidy
from textcapsules.reasons.strengths import NgramStrengths, Strengths


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


def test_nothing_is_picked_where_nothing_speaks_for_the_label():
    values = np.array([-1.0, -0.5, 0.0], np.float32).reshape(1, 3, 1)
    picked = pick_phrases([NgramStrengths(1, 1, values)], np.array([3]), top=3)
    assert not picked.strengths.any()


def of_tokens(*values: float) -> Strengths:
    """Return the strengths of one text's tokens for one class."""
    tokens = np.array(values, np.float32).reshape(1, -1, 1)
    return Strengths(np.ones((1, 1), np.float32), (), tokens, None, None)


def proposed(strengths: Strengths, **options) -> list[tuple[int, int]]:
    n_tokens = np.array([strengths.tokens.shape[1]])
    picked = propose_phrases(strengths, n_tokens, 5, **options)
    ends = zip(picked.starts[0, 0], picked.ends[0, 0], strict=True)
    pairs = zip(ends, picked.strengths[0, 0], strict=True)
    return [(int(a), int(b)) for (a, b), strength in pairs if strength > 0]


def test_every_token_of_a_phrase_pays_its_price():
    strengths = of_tokens(0.0, 1.0, 0.3, 0.9, 0.0, 0.0, 0.25, -0.5)
    assert proposed(strengths, price=0.1) == [(1, 4), (6, 7)]
    assert proposed(strengths, price=0.6) == [(1, 2), (3, 4)]


def test_what_speaks_against_a_label_is_proposed_too():
    strengths = of_tokens(0.0, 1.0, 0.0, -0.4, -0.6, 0.0)
    assert proposed(strengths, price=0.1, against=True) == [(3, 5)]


def test_ngrams_stay_whole_where_a_method_knows_nothing_smaller():
    ngrams = (NgramStrengths(2, 1, np.array([0.2, 1.0], np.float32).reshape(1, 2, 1)),)
    strengths = of_tokens(0.1, 0.6, 0.5)._replace(ngrams=ngrams, of_ngrams=True)
    assert proposed(strengths, price=0.5) == [(1, 3)]


@pytest.mark.parametrize(
    ("text", "picked", "shown"),
    [
        ("and the app crashes .", "the app crashes .", "app crashes"),
        ("I am not angry", "angry", "not angry"),
        ("I do n't like it", "like", "n't like"),
        ("it is never very good", "good", "never very good"),
        ("no, good", "good", "good"),  # a mark parts them
        ("I am not angry", "not", "not angry"),
        ("you owe me $167.25, now", "167.25", "$167.25"),
        ("you owe me $167.25, now", "$", "$167.25"),
        ("about 50% of it", "50", "50%"),
        ("who wrote it", "who wrote", "wrote"),
        ("the", "the", "the"),
        ("好看", "好", "好"),
        ("billed for my plan", "billed for", "billed"),
        ("I cannot log in since May", "log", "cannot log in"),
        ("I paid in cash", "paid in", "paid"),
        ("it is slow, and late", "and late", "late"),
        ("as soon as I type", "as soon as I type", "type"),
        ("a sign-in page", "in page", "sign-in page"),
        ("a rate of 1,000.50 again", "1", "1,000.50"),
    ],
)
def test_a_phrase_has_ends_that_can_be_read(text, picked, shown):
    words = r"\d+(?:[.]\d+)?|[^\W\d_\u4e00-\u9fff']+(?:'t)?|\S"
    places = [match.span() for match in re.finditer(words, text)]
    start = text.index(picked)
    inside = [
        n for n, (a, b) in enumerate(places) if start <= a and b <= start + len(picked)
    ]
    strengths = [0.0] * len(places)
    strengths[inside[-1] - (text[places[inside[-1]][0]] == ".")] = 1.0
    first, last = tidy(text, places, strengths, inside[0], inside[-1] + 1)
    assert text[places[first][0] : places[last - 1][1]] == shown


def test_a_function_word_that_speaks_stays():
    text, places = "who wrote it", [(0, 3), (4, 9), (10, 12)]
    assert tidy(text, places, [0.9, 1.0, 0.1], 0, 3) == (0, 2)
    assert tidy(text, places, [0.1, 1.0, 0.9], 0, 3) == (1, 3)


def test_clauses_begin_after_signs_and_at_words_that_link():
    text = "Hi: it closes as soon as I sign in, and so on. Why - if not now?"
    begins = [text[place:].split()[0] for place in joints(text)]
    assert begins == ["Hi:", "it", "as", "and", "and", "so", "Why", "if", "if"]
    assert joints("sign-in at 10:30 costs 1,000") == [0]
