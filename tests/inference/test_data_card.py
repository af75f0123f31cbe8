"""The card of training texts against counts by hand and another TF-IDF."""

import json

import numpy as np
import pytest

from textcapsules.data.example import Example
from textcapsules.inference.data_card import (
    Repeated,
    data_card,
    label_overlaps,
    repeats,
)

EXAMPLES = [
    Example("The dog barks", ("dogs",)),
    Example("the  DOG barks", ("cats",)),
    Example("the dog barks", ("dogs",)),
    Example("a cat purrs loudly today", ("cats",)),
    Example("one bird", ("birds",)),
]


def test_repeats_ignore_case_and_spaces_and_keep_both_labels() -> None:
    assert repeats(EXAMPLES) == (Repeated("The dog barks", 3, (("dogs",), ("cats",))),)
    assert repeats(EXAMPLES[3:]) == ()


def test_card_counts_texts_words_and_labels() -> None:
    judged = [
        Example("A cat purrs  loudly today", ("cats",)),
        Example("new", ("cats",)),
    ]
    card = data_card(EXAMPLES, judged, labels=("dogs", "cats", "birds", "fish"))
    assert card.texts == 5
    assert card.words == (3, 4, 5)
    assert card.labels == {"cats": 2, "dogs": 2, "birds": 1, "fish": 0}
    assert set(card.rare) == {"cats", "dogs", "birds", "fish"}
    assert (card.copies, len(card.contradictions), card.among_judged) == (2, 1, 1)
    json.dumps(card.to_dict())


def test_overlap_is_the_cosine_of_mean_vectors() -> None:
    documents = [["refund", "card"], ["card", "invoice"], ["refund", "parcel"]]
    labels = [["billing"], ["billing"], ["returns"]]
    (found,) = label_overlaps(documents, labels)
    words = ["card", "invoice", "parcel", "refund"]
    counts = np.array([[word in d for word in words] for d in documents], float)
    idf = np.log((1 + 3) / (1 + counts.sum(0))) + 1
    vectors = counts * idf
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    billing, returns = vectors[:2].sum(0), vectors[2]
    cosine = billing @ returns / np.linalg.norm(billing) / np.linalg.norm(returns)
    assert (found.label, found.other) == ("billing", "returns")
    assert found.similarity == pytest.approx(cosine)
    assert found.words == ("refund",)


def test_function_words_make_no_labels_alike() -> None:
    documents = [["the", "dog", "is", "not", "here"], ["the", "cat", "is", "not", "."]]
    assert label_overlaps(documents, [["a"], ["b"]]) == ()
    assert label_overlaps([["the"], ["is"]], [["a"], ["b"]]) == ()


def test_card_of_no_texts() -> None:
    card = data_card([], labels=("a",))
    assert (card.texts, card.words, card.overlaps) == (0, (0, 0, 0), ())
