"""Reasons where a linear model of words is added: its share is in them."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from random_models import WORDS, random_classifier, random_words
from textcapsules.config import RunConfig
from textcapsules.model.baselines.convolutional import KimCnn
from textcapsules.model.classifier import Labels, TextClassifier
from textcapsules.model.network import Network
from textcapsules.model.word_scores import PAIR, Weights, WordScores
from textcapsules.reasons.methods import (
    batch_for,
    capsule_network,
    class_scores,
)
from textcapsules.reasons.samples import correct_strengths
from textcapsules.reasons.strengths import find_strengths
from textcapsules.reasons.texts import explain
from textcapsules.text.vocabulary import PAD, UNK, TextTokenizer

TEXT = ["w1", "w2", "w3", "w2", "w4", "w5", "w6"]
TEXTS = [" ".join(TEXT), "w7 w8 w7", "w9"]
WEIGHTS = (0.7, 1.2, 0.3)


def with_words(classifier: TextClassifier) -> TextClassifier:
    network = classifier.network
    assert isinstance(network, Network)
    words = random_words(len(WORDS) + 2, 3, weights=WEIGHTS)
    network.words = words.double()
    return classifier


def capsules() -> TextClassifier:
    return with_words(random_classifier())


def cnn() -> TextClassifier:
    torch.manual_seed(0)
    embedding = torch.nn.Embedding(len(WORDS) + 2, 5, padding_idx=0)
    network = KimCnn(
        embedding, ngram_sizes=(2, 3), feature_maps=6, n_classes=3, several=True
    )
    tokenizer = TextTokenizer([PAD, UNK, *WORDS], rule="words")
    run = RunConfig().replace(text={"max_tokens": 16, "rule": "words"})
    labels = Labels(("red", "green", "blue"), (0.5,) * 3, "multi-label")
    return with_words(TextClassifier(run, tokenizer, labels, network.double().eval()))


models = pytest.mark.parametrize("make", [capsules, cnn])


def alone(classifier: TextClassifier) -> TextClassifier:
    """Return the same model without the say of its words."""
    assert isinstance(classifier.network, Network)
    classifier.network.words = None
    return classifier


def strengths_of(classifier: TextClassifier, method: str) -> tuple[Tensor, Tensor]:
    """Return the tokens' strengths and the lengths of `TEXTS`, together."""
    batch = batch_for(classifier.network, classifier.encode(TEXTS), range(3))
    found = find_strengths(classifier.network, batch.ids, batch.mask, method)
    return torch.from_numpy(found.tokens), torch.from_numpy(found.lengths)


@models
def test_what_a_decision_reads_has_the_words_in_it(
    make: Callable[[], TextClassifier],
) -> None:
    classifier = make()
    network = classifier.network
    assert isinstance(network, Network)
    batch = batch_for(network, classifier.encode(TEXTS), range(3))
    with torch.no_grad():
        output = network(batch.ids, batch.mask)
        found = class_scores(network, output, batch.ids, batch.mask)
        expected = network.score(batch.ids, batch.mask)
    torch.testing.assert_close(found[:, :3], expected)
    np.testing.assert_allclose(found[:, :3], classifier.scores(TEXTS), atol=1e-6)
    own = output.lengths(orphan=True)
    torch.testing.assert_close(found[:, 3:], own[:, 3:])  # the orphan keeps its length
    assert not torch.isclose(found[:, :3], own[:, :3]).any()


@models
def test_erasing_a_word_is_scoring_the_text_without_it(
    make: Callable[[], TextClassifier],
) -> None:
    classifier = make()
    tokens, _ = strengths_of(classifier, "erasure")
    shorter = [" ".join(TEXT[:k] + TEXT[k + 1 :]) for k in range(len(TEXT))]
    whole, *rest = classifier.scores([TEXTS[0], *shorter])
    np.testing.assert_allclose(tokens[0, :, :3], whole - np.array(rest), atol=1e-6)
    assert not np.allclose(
        tokens[..., :3], strengths_of(alone(classifier), "erasure")[0][..., :3]
    )


@pytest.mark.parametrize(
    ("make", "method"),
    [
        *((capsules, each) for each in ("contributions", "gradient", "integrated")),
        *((cnn, each) for each in ("gradient", "integrated")),
    ],
)
def test_a_words_share_is_added_in_the_networks_units(
    make: Callable[[], TextClassifier], method: str
) -> None:
    classifier = make()
    network = classifier.network
    assert isinstance(network, Network) and network.words is not None
    batch = batch_for(network, classifier.encode(TEXTS), range(3))
    words, (alpha, beta, _) = network.words, WEIGHTS
    found, _ = strengths_of(classifier, method)
    given, own = strengths_of(alone(classifier), method)
    for row, ids in enumerate(batch.ids):
        size = int(batch.mask[row].sum())
        shares = words.shares(
            ids[None, :size], batch.mask[row : row + 1, :size], range(3)
        )
        for j in range(3):
            unit = beta / alpha  # of a logit
            if make is capsules:  # the way of its length from 1e-4, by its logits
                s = np.clip(float(own[row, j]), 1e-4, 1 - 1e-4)
                start = np.log(1e-4 / (1 - 1e-4))
                unit *= (s - 1e-4) / (np.log(s / (1 - s)) - start)
            expected = given[row, :size, j] + unit * shares[0, :, j].float()
            torch.testing.assert_close(
                found[row, :size, j], expected, atol=1e-5, rtol=0
            )
    torch.testing.assert_close(found[..., 3:], given[..., 3:])  # none is the orphan's
    assert not found[~batch.mask].any()


def test_couplings_are_the_networks_alone() -> None:
    classifier = capsules()
    found, lengths = strengths_of(classifier, "couplings")
    given, own = strengths_of(alone(classifier), "couplings")
    torch.testing.assert_close(found, given)
    assert not torch.isclose(lengths[:, :3], own[:, :3]).any()


def test_sampled_texts_correct_the_strengths_that_words_are_in() -> None:
    classifier = capsules()
    network = capsule_network(classifier)
    documents = classifier.encode(TEXTS)
    contributions, _ = strengths_of(classifier, "contributions")
    rows = zip(contributions.numpy(), documents, strict=True)
    given = [row[: len(ids)] for row, ids in rows]
    expected = correct_strengths(network, documents, given, range(4))
    found, _ = strengths_of(classifier, "sampled")
    for row, values in zip(found, expected, strict=True):
        np.testing.assert_allclose(row[: len(values)], values, atol=1e-5)


def only_words_speak() -> TextClassifier:
    """Return a model whose capsules see all words alike; w7 and "w8 w9" say green."""
    classifier = random_classifier()
    network = capsule_network(classifier)
    with torch.no_grad():
        network.embedding.weight[2:] = network.embedding.weight[2]
    w7, w8, w9, *others = (
        int(ids[0]) for ids in classifier.encode(["w7", "w8", "w9", *WORDS[:6]])
    )
    # The others are known too, and tell nothing.
    ngrams = np.array([w7 * PAIR, w8 * PAIR + w9, *(word * PAIR for word in others)])
    weight, idf = np.zeros((3, len(ngrams))), np.full(len(ngrams), 0.01)
    weight[1, :2], idf[:2] = 6.0, 1.0
    words = WordScores.of(ngrams, idf, weight, np.full(3, -3.0))
    network.words = words.weighed(Weights(0.1, 1.0, 0.0)).double()
    return classifier


@pytest.mark.parametrize("method", ["contributions", "sampled", "erasure"])
@pytest.mark.parametrize(
    ("text", "named"),
    [("w1 w2 w3 w4 w7 w5 w6 w1", {"w7"}), ("w1 w2 w3 w8 w9 w4 w5 w6", {"w8", "w9"})],
)
def test_the_words_that_alone_speak_for_a_class_are_named_first(
    method: str, text: str, named: set[str]
) -> None:
    found = explain(only_words_speak(), text, method=method)
    green = found.labels[1]
    assert green.label == "green"
    tokens = dict(zip(text.split(), green.tokens, strict=True))
    strongest = sorted(tokens, key=lambda word: -tokens[word])[: len(named)]
    assert set(strongest) == named
    assert named & set(green.phrases[0].text.split())
    assert len(green.phrases[0].text.split()) <= 3


@models
def test_strengths_shown_are_the_fall_of_the_models_own_score(
    make: Callable[[], TextClassifier],
) -> None:
    classifier = make()
    found = explain(classifier, TEXTS[0])
    tried = 0
    for label in found.labels:
        place = classifier.labels.names.index(label.label)
        for phrase in label.phrases:
            left = TEXTS[0][: phrase.start] + " " + TEXTS[0][phrase.end :]
            before, after = classifier.scores([TEXTS[0], left])[:, place]
            assert phrase.strength == pytest.approx(before - after, abs=1e-5)
            tried += 1
    assert tried
