"""Strengths corrected by altered texts, against a plain least-squares solution."""

from typing import Any

import numpy as np
import pytest

from textcapsules.reasons import samples
from textcapsules.reasons.samples import (
    SURE_TOKENS,
    correct_strengths,
    draw_masks,
    fit,
)


@pytest.mark.parametrize("n_tokens", [2, 3, 7, 40])
def test_altered_texts_come_in_pairs_and_none_is_empty(n_tokens):
    masks = draw_masks(n_tokens, 16)
    assert masks.shape == (16, n_tokens)
    assert masks.any(1).all()
    np.testing.assert_array_equal(masks[:8], ~masks[8:])
    np.testing.assert_array_equal(masks, draw_masks(n_tokens, 16))


def test_scores_that_are_sums_are_explained_by_their_terms():
    random = np.random.default_rng(0)
    terms = random.normal(size=(6, 2)) + 0.5
    masks = random.random((2000, 6)) < 0.5
    found = fit(masks, masks @ terms, terms.sum(0), np.full((6, 2), 0.1))
    np.testing.assert_allclose(found, terms, atol=0.03)


def test_it_is_a_regression_around_what_was_given():
    random = np.random.default_rng(1)
    masks, given = random.random((8, 5)) < 0.5, random.random((5, 3))
    scores, whole = random.random((8, 3)), given.sum(0)
    found = fit(masks, scores, whole, given)
    rows = np.concatenate([masks, np.ones((1, 5)), np.zeros((1, 5))])
    values = np.concatenate([scores, whole[None], np.zeros((1, 3))])
    # The same by augmented rows: λ asks every strength to stay where it was.
    centred = rows - rows.mean(0)
    more = 5 / SURE_TOKENS
    expected, *_ = np.linalg.lstsq(
        np.concatenate([centred, more * np.eye(5)]),
        np.concatenate([values - values.mean(0), more * given]),
    )
    np.testing.assert_allclose(found, expected, atol=1e-9)


def test_every_document_is_corrected_by_its_own_scores(monkeypatch):
    weights = np.array([0.0, 0.0, 0.1, 0.3, -0.2, 0.4])

    def lengths(_network, documents):
        sums = np.array([weights[ids].sum() for ids in documents], np.float32)
        return np.stack([sums, -sums], 1)

    monkeypatch.setattr(samples, "document_lengths", lengths)
    documents = [np.array([2, 3, 5, 4]), np.array([5]), np.array([3, 3, 2])]
    given = [np.full((len(ids), 1), 0.05) for ids in documents]
    network: Any = None
    found = correct_strengths(network, documents, given, [0], n_samples=400)
    for ids, values in zip(documents, found, strict=True):
        assert values.shape == (len(ids), 1)
        if len(ids) > 1:
            np.testing.assert_allclose(values[:, 0], weights[ids], atol=0.02)
