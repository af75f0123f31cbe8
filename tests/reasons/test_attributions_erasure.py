import numpy as np
import pytest

from random_models import WORDS, random_classifier
from textcapsules.reasons.attributions import document_lengths, erase_ngrams
from textcapsules.reasons.methods import capsule_network

TEXT = WORDS[:9]


def test_erasing_is_predicting_the_shorter_text():
    classifier = random_classifier()
    ids = classifier.encode([" ".join(TEXT)])
    (falls,) = erase_ngrams(capsule_network(classifier), ids, size=3, stride=2)
    kept = [TEXT[:start] + TEXT[start + 3 :] for start in (0, 2, 4, 6)]
    texts = [" ".join(words) for words in (TEXT, *kept)]
    whole, *rest = classifier.scores(texts)
    np.testing.assert_allclose(falls[:, :3], whole - np.array(rest), atol=1e-6)


def test_a_text_shorter_than_the_ngram_is_deleted_whole():
    classifier = random_classifier()
    ids = classifier.encode(["w1 w2"])
    (falls,) = erase_ngrams(capsule_network(classifier), ids, size=3, stride=1)
    np.testing.assert_allclose(falls[:, :3], classifier.scores(["w1 w2"]), atol=1e-6)


def test_an_ngram_over_the_ends_is_deleted_as_far_as_it_is_there():
    classifier = random_classifier(edges=True)
    ids = classifier.encode(["w1 w2 w3 w4"])
    (falls,) = erase_ngrams(capsule_network(classifier), ids, 3, 1, first=-2)
    kept = ["w2 w3 w4", "w3 w4", "w4", "w1", "w1 w2", "w1 w2 w3"]
    whole, *rest = classifier.scores(["w1 w2 w3 w4", *kept])
    np.testing.assert_allclose(falls[:, :3], whole - np.array(rest), atol=1e-6)


@pytest.mark.parametrize("mask_padding", [True, False])
def test_lengths_are_the_scores_in_the_documents_order(mask_padding):
    classifier = random_classifier(mask_padding=mask_padding)
    texts = ["w1 w2 w3", "", "w4 " * 9, "unknown words", "w5"] * 20
    found = document_lengths(capsule_network(classifier), classifier.encode(texts))
    assert found.shape == (100, 4)
    np.testing.assert_allclose(found[:, :3], classifier.scores(texts), atol=1e-6)
    assert not found[[1, 3]].any()
