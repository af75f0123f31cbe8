"""Words' capsules against a loop over every occurrence."""

from typing import Any

import numpy as np
import pytest
import torch

from random_models import random_classifier
from textcapsules.lab.paper import published
from textcapsules.lab.paper.displays import FUNCTION_WORDS, sum_words
from textcapsules.model.layers import NgramConv
from textcapsules.reasons.couplings import branches_of
from textcapsules.reasons.methods import capsule_network

UNIGRAMS: dict[str, Any] = {"ngram_sizes": (1,), "conv_capsules": False}
WORDS = ["the", "and", "deficit", "trade", "w1"]
TEXTS = ["the deficit and the trade", "trade", "", "nothing of it", "the strange w1"]


def occurrences(classifier) -> list[tuple[str, list[float], list[float]]]:
    """Return every known word met, its capsules' lengths and their couplings."""
    network = capsule_network(classifier)
    found = []
    for text in TEXTS:
        tokens = classifier.tokenizer.tokens(text)
        if all(token.id < 2 for token in tokens):
            continue
        ids = torch.tensor([[token.id for token in tokens]])
        (routing,) = network(ids, torch.ones_like(ids).bool(), inspect=True).branches
        C = routing.capsules.shape[2]
        for place, token in enumerate(tokens):
            own = routing.capsules[0, place].norm(dim=-1).tolist()
            coupled = routing.classes.couplings[0, place * C : (place + 1) * C, -1]
            if token.id > 1:
                found.append((token.text, own, coupled.tolist()))
    return found


@pytest.mark.parametrize("amendment", [True, False])
@torch.no_grad()
def test_sums_are_those_of_all_occurrences(amendment):
    classifier = random_classifier(WORDS, **UNIGRAMS, amendment=amendment)
    found = sum_words(classifier, TEXTS)
    expected = occurrences(classifier)
    assert set(found.words) == {word for word, _, _ in expected}
    for row, word in enumerate(found.words):
        own = [each[1:] for each in expected if each[0] == word]
        assert found.counts[row] == len(own)
        lengths = sum(np.mean(lengths) for lengths, _ in own)
        coupled = sum(np.mean(coupled) for _, coupled in own)
        given = lengths if amendment else len(own)
        shares = sum(
            np.mean(np.divide(coupled, lengths if amendment else 1.0))
            for lengths, coupled in own
        )
        assert found.lengths[row] == pytest.approx(lengths)
        assert found.given[row] == pytest.approx(given)
        assert found.coupled[row] == pytest.approx(coupled)
        assert found.shares[row] == pytest.approx(shares)


def test_groups_part_function_words_from_others():
    found = sum_words(random_classifier(WORDS, **UNIGRAMS), TEXTS)
    function, other = found.means(function=True), found.means(function=False)
    assert (function.occurrences, other.occurrences) == (4, 4)  # the x3, and | others
    the, and_ = (found.words.index(word) for word in ("the", "and"))
    total = found.lengths[the] + found.lengths[and_]
    assert function.length == pytest.approx(total / 4)
    coupled = found.coupled[the] + found.coupled[and_]
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
    found = sum_words(classifier, TEXTS)
    silent = dict(zip(found.words, found.silent / found.counts, strict=True))
    assert silent.pop("deficit") == 0
    assert set(silent.values()) == {1.0}
    lengths = found.lengths / found.counts
    others = [found.words.index(word) for word in silent]
    np.testing.assert_allclose(lengths[others], lengths[others[0]])


def test_strongest_are_ordered_by_value_then_name():
    found = sum_words(random_classifier(WORDS, **UNIGRAMS), TEXTS)
    by_count = found.strongest(found.counts, 3)
    assert by_count == ["the", "trade", "and"]
    assert found.strongest(found.counts, 99)[2:] == ["and", "deficit", "w1"]


def test_function_words_are_those_of_the_published_column():
    orphan = published.top_words()["orphan"]
    assert [word for word in orphan if word not in FUNCTION_WORDS] == [
        "said", "u.s.", "mln", "billion", "gulf", "today",
    ]  # fmt: skip
    for name in ("trade", "money-fx", "interest"):
        assert len(published.top_words()[name]) == 20
        assert not FUNCTION_WORDS & set(published.top_words()[name])
