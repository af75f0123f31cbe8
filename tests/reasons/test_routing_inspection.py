import numpy as np
import pytest

from random_models import random_classifier
from textcapsules.base.errors import ConfigError
from textcapsules.reasons.couplings import connection_strengths
from textcapsules.reasons.explanation import ORPHAN
from textcapsules.reasons.methods import capsule_network
from textcapsules.reasons.routing_inspection import connections
from textcapsules.text.batch import make_batch

TEXT = "W1 w2, w3 w4 w5"


def test_connections_are_the_couplings_of_the_primary_capsules():
    classifier = random_classifier(conv_capsules=False)
    found = connections(classifier, TEXT, ngram_size=3)
    assert found.phrases == ("W1 w2,", "w2, w3", ", w3 w4", "w3 w4 w5")
    assert list(found.strengths) == ["red", "green", "blue", ORPHAN]
    batch = make_batch(classifier.encode([TEXT]), np.zeros((1, 0)), [0])
    output = capsule_network(classifier)(batch.ids, batch.mask, inspect=True)
    routed = output.branches[1]
    assert routed.ngram_size == 3
    couplings = routed.classes.couplings[0].detach().numpy()  # (4 n-grams of 3, 4)
    for place, strengths in enumerate(found.strengths.values()):
        means = couplings[:, place].reshape(4, 3).mean(1) / 2  # of two networks
        np.testing.assert_allclose(strengths, means, atol=1e-6)
    np.testing.assert_allclose(
        list(found.scores.values())[:3], classifier.scores([TEXT])[0], atol=1e-6
    )


def test_networks_that_read_the_same_ngrams_are_added_up():
    classifier = random_classifier(peaks=True, conv_capsules=False)
    found = connections(classifier, TEXT, ngram_size=3)
    batch = make_batch(
        classifier.encode([TEXT]), np.zeros((1, 0), dtype=np.float32), np.array([0])
    )
    network = capsule_network(classifier)
    output = network(batch.ids, batch.mask, inspect=True)
    two, three, _, peaks = (
        strengths[0].detach().numpy()
        for strengths in connection_strengths(network, output)
    )
    assert len(two) == len(three) + 1
    values = np.array(list(found.strengths.values())).T
    np.testing.assert_allclose(values, three + peaks, atol=1e-6)


def test_ngrams_over_the_ends_are_shown_as_far_as_they_are_there():
    classifier = random_classifier(edges=True, conv_capsules=False)
    found = connections(classifier, "w1 w2 w3", ngram_size=3)
    assert found.phrases == ("w1", "w1 w2", "w1 w2 w3", "w2 w3", "w3")
    assert all(len(values) == 5 for values in found.strengths.values())
    nothing = connections(classifier, "", ngram_size=3)
    assert nothing.phrases == ()
    assert not any(nothing.strengths.values())


@pytest.mark.parametrize("text", ["", "unknown", "w1"])
def test_connections_of_little_text(text):
    found = connections(random_classifier(stride=2), text)
    n_ngrams = int(text == "w1")
    assert len(found.phrases) == n_ngrams
    assert all(len(values) == n_ngrams for values in found.strengths.values())
    assert any(found.scores.values()) == bool(n_ngrams)


def test_a_size_the_model_lacks_is_refused():
    with pytest.raises(ConfigError, match=r"one of the model's, \[2, 3\]; got 7"):
        connections(random_classifier(), TEXT, ngram_size=7)
