"""Words' capsules against a loop over every occurrence."""

from typing import Any

import numpy as np
import pytest
import torch

from random_models import random_classifier
from textcapsules.lab.paper import published
from textcapsules.lab.paper.table_a3 import FUNCTION_WORDS, sum_words
from textcapsules.model.layers import NgramConv
from textcapsules.reasons.couplings import branches_of
from textcapsules.reasons.methods import capsule_network

UNIGRAMS: dict[str, Any] = {"ngram_sizes": (1,), "conv_capsules": False}
WORDS = ["the", "and", "deficit", "trade", "w1"]
TEXTS = ["the deficit and the trade", "trade", "", "nothing of it", "the strange w1"]


def occurrences(classifier) -> list[tuple[str, list[float], list[float]]]:
    """Return every occurrence of a known word, its capsules' lengths and couplings."""
    network = capsule_network(classifier)
    occurring = []
    for text in TEXTS:
        tokens = classifier.tokenizer.tokens(text)
        if all(token.id < 2 for token in tokens):
            continue
        ids = torch.tensor([[token.id for token in tokens]])
        (routing,) = network(ids, torch.ones_like(ids).bool(), inspect=True).branches
        C = routing.capsules.shape[2]
        for place, token in enumerate(tokens):
            lengths = routing.capsules[0, place].norm(dim=-1).tolist()
            coupled = routing.classes.couplings[0, place * C : (place + 1) * C, -1]
            if token.id > 1:
                occurring.append((token.text, lengths, coupled.tolist()))
    return occurring


@pytest.mark.parametrize("amendment", [True, False])
@torch.no_grad()
def test_sums_are_those_of_all_occurrences(amendment):
    classifier = random_classifier(WORDS, **UNIGRAMS, amendment=amendment)
    sums = sum_words(classifier, TEXTS)
    expected = occurrences(classifier)
    assert set(sums.words) == {word for word, _, _ in expected}
    for row, word in enumerate(sums.words):
        of_word = [each[1:] for each in expected if each[0] == word]
        assert sums.counts[row] == len(of_word)
        lengths = sum(np.mean(lengths) for lengths, _ in of_word)
        coupled = sum(np.mean(coupled) for _, coupled in of_word)
        given = lengths if amendment else len(of_word)
        assert sums.lengths[row] == pytest.approx(lengths)
        assert sums.given[row] == pytest.approx(given)
        assert sums.coupled[row] == pytest.approx(coupled)


def test_function_words_and_others_are_two_groups():
    sums = sum_words(random_classifier(WORDS, **UNIGRAMS), TEXTS)
    function, other = sums.means(function=True), sums.means(function=False)
    assert (function.occurrences, other.occurrences) == (4, 4)  # the x3, and | others
    the, and_ = (sums.words.index(word) for word in ("the", "and"))
    total = sums.lengths[the] + sums.lengths[and_]
    assert function.length == pytest.approx(total / 4)
    coupled = sums.coupled[the] + sums.coupled[and_]
    assert function.coupled == pytest.approx(coupled / 4)
    assert function.share == pytest.approx(coupled / total)


def test_a_word_without_features_is_silent():
    classifier = random_classifier(WORDS, **UNIGRAMS)
    network = capsule_network(classifier)
    with torch.no_grad():
        ngrams = branches_of(network)[0].ngrams
        assert isinstance(ngrams, NgramConv)
        conv = ngrams.conv
        assert conv.bias is not None
        conv.weight.zero_()
        conv.weight[0, 0, 0] = 1.0
        conv.bias.fill_(-0.5)
        network.embedding.weight.zero_()
        network.embedding.weight[WORDS.index("deficit") + 2, 0] = 1.0
    sums = sum_words(classifier, TEXTS)
    silent = dict(zip(sums.words, sums.silent / sums.counts, strict=True))
    assert silent.pop("deficit") == 0
    assert set(silent.values()) == {1.0}
    lengths = sums.lengths / sums.counts
    others = [sums.words.index(word) for word in silent]
    np.testing.assert_allclose(lengths[others], lengths[others[0]])


def test_function_words_are_those_of_the_published_column():
    orphan = published.top_words()["orphan"]
    assert [word for word in orphan if word not in FUNCTION_WORDS] == [
        "said", "u.s.", "mln", "billion", "gulf", "today",
    ]  # fmt: skip
    for name in ("trade", "money-fx", "interest"):
        assert len(published.top_words()[name]) == 20
        assert not FUNCTION_WORDS & set(published.top_words()[name])
