"""Faithfulness of a network made by hand, in which a single word counts."""

import json

import numpy as np
import pytest
import torch

from random_models import WORDS, random_classifier
from textcapsules.base.errors import ConfigError, DataError
from textcapsules.model.classifier import TextClassifier
from textcapsules.model.layers import CapsuleLayer, NgramConv
from textcapsules.reasons.couplings import branches_of
from textcapsules.reasons.faithfulness import SHARES, Remaining, compare, rank_tokens
from textcapsules.reasons.faithfulness import measure_faithfulness as measure
from textcapsules.reasons.methods import capsule_network

pytestmark = pytest.mark.slow

FILLERS = " ".join(WORDS[:19])


def one_word_classifier() -> TextClassifier:
    """Return uni-gram capsules in which all words but w19 are zero and cannot vote."""
    classifier = random_classifier(
        architecture="capsule-a",
        ngram_sizes=(1,),
        conv_capsules=False,
        orphan=False,
        max_tokens=40,
        labels=("red", "green"),
    )
    network = capsule_network(classifier)
    (branch,) = branches_of(network)
    ngrams, classes = branch.ngrams, branch.classes
    assert isinstance(ngrams, NgramConv)
    assert isinstance(classes, CapsuleLayer)
    with torch.no_grad():
        for weight in network.parameters():
            weight.zero_()
        network.embedding.weight[-1] = 1.0  # w19
        ngrams.conv.weight[:] = 1.0
        branch.primary.linear.weight[:] = 0.5
        classes.transform[0] = 3 * torch.eye(4)  # red; green stays at zero
    return classifier


@pytest.mark.parametrize("place", [0, 7, 19])
def test_deleting_and_keeping_the_one_word_is_all_or_nothing(place):
    words = FILLERS.split()
    text = " ".join([*words[:place], "w19", *words[place:]])
    classifier = one_word_classifier()
    assert classifier.predict([text])[0].labels == ("red",)
    methods = ("couplings", "contributions", "gradient", "integrated", "erasure")
    found = measure(classifier, [text], methods=methods, draws=100)
    assert (found.texts, found.cases, found.shares) == (1, 1, SHARES)
    *named, random = found.methods
    assert [curves.method for curves in named] == list(methods)
    for curves in named:
        assert curves.deleted == pytest.approx([0.0] * len(SHARES), abs=1e-6)
        assert curves.kept == pytest.approx([1.0] * len(SHARES), abs=1e-6)
        assert curves.comprehensiveness == pytest.approx(1, abs=1e-6)
        assert curves.sufficiency == pytest.approx(0, abs=1e-6)
    # A random word is the one with a chance of its share: 1, 2, 4, 6, 10 of 20.
    assert random.kept == pytest.approx(SHARES, abs=0.16)
    assert random.deleted == pytest.approx(1 - np.array(SHARES), abs=0.16)


def test_wrong_words_do_not_matter():
    """A ranking turned round finds the word last, and says so in its figures."""
    classifier = one_word_classifier()
    documents = classifier.encode([f"{FILLERS} w19", f"w19 {FILLERS}"])
    random = np.random.default_rng(0)
    orders = rank_tokens(capsule_network(classifier), documents, 0, "couplings", random)
    assert [order[0] for order in orders] == [19, 0]
    assert all(sorted(order) == list(range(20)) for order in orders)


def test_spread_is_over_cases():
    texts = [f"w19 {FILLERS}", "w19 w1 w2 w3", "w19 w19 w19 w19 w1 w2"]
    found = measure(one_word_classifier(), texts, methods=["couplings"])
    couplings, random = found.methods
    assert found.cases == 3
    # Four of six words speak: one deleted word leaves three.
    assert couplings.comprehensiveness < 1
    assert couplings.comprehensiveness_spread > 0
    assert random.comprehensiveness < couplings.comprehensiveness
    assert found.best == "couplings"
    json.dumps(found.to_dict())


def test_same_seed_same_figures_and_the_sample_is_bounded():
    classifier = random_classifier()
    texts = [" ".join(np.random.default_rng(n).choice(WORDS, 9)) for n in range(30)]
    once, again = (measure(classifier, texts, max_texts=7, seed=4) for _ in range(2))
    assert once == again
    assert once.texts == 7
    assert measure(classifier, texts, max_texts=7, seed=5) != once


def test_the_verdict_follows_the_figures():
    high, low = np.full((9, 5), 0.9), np.full((9, 5), 0.1)
    wavering = low + np.linspace(-0.3, 0.3, 9)[:, None]
    measured = {
        "couplings": Remaining(low, high),
        "gradient": Remaining(high, low),
        "integrated": Remaining(wavering, high),
    }
    assert compare("couplings", "gradient", measured).startswith(
        "couplings is more faithful than gradient (+1.600"
    )
    assert "couplings is less" in compare(
        "couplings", "gradient", {**measured, "gradient": Remaining(low - 0.1, high)}
    )
    assert "do not clearly differ" in compare("couplings", "integrated", measured)


def test_what_cannot_be_measured_is_refused():
    classifier = one_word_classifier()
    with pytest.raises(ConfigError, match=r"methods must be some of .*'magic'"):
        measure(classifier, ["w19"], methods=["magic"])
    with pytest.raises(DataError, match=r"that the model gives a label; got none"):
        measure(classifier, ["", "w1 w2", "unknown"])
