"""Contributions corrected by a few altered texts: `sampled`.

Contributions say what every word adds as the text stands: with the couplings and gates
that it led to. Where words are deleted, routing settles elsewhere, and a word that said
the same as another becomes the only one to say it. So some texts with words left out
are scored, and the contributions are changed as little as these scores ask for.

With w the strengths, M the altered texts (one row per text, 1 where a word is kept) and
y their scores, w minimises

    |y - ȳ - (M - M̄) w|² + λ |w - c|²

c being the contributions, scaled to add up to the score: a ridge regression around c in
place of zero. LIME is the same regression around zero, and needs several times as many
texts. The altered texts come in pairs, each keeping what the other deletes; the whole
text and the empty one, which scores zero, are among them. One set of altered texts
serves all classes.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from textcapsules.model.builder import System
from textcapsules.reasons.attributions import document_lengths, keep_tokens

__all__ = ["N_SAMPLES", "correct_strengths", "draw_masks"]

N_SAMPLES = 32  # altered texts per text
SURE_TOKENS = 10  # of a text for which λ is 1: so many are told apart by the samples


def correct_strengths(
    network: System,
    documents: Sequence[NDArray],
    strengths: Sequence[NDArray],
    columns: Sequence[int],
    *,
    n_samples: int = N_SAMPLES,
) -> list[NDArray[np.float64]]:
    """Return the strengths (T, E) of the tokens of every document, corrected.

    Args:
        network: in evaluation mode.
        documents: row numbers of their tokens.
        strengths: (T, E) of each document.
        columns: the classes E.
        n_samples: altered texts per document, an even number.
    """
    masks = [draw_masks(len(ids), n_samples) for ids in documents]
    altered = [
        keep_tokens(network, ids, mask)
        for ids, rows in zip(documents, masks, strict=True)
        for mask in rows
    ]
    lengths = document_lengths(network, [*documents, *altered])[:, list(columns)]
    whole, rest = lengths[: len(documents)], lengths[len(documents) :]
    scores = np.split(rest, np.cumsum([len(rows) for rows in masks])[:-1])
    return [
        fit(rows, after, before, given)
        for rows, after, before, given in zip(
            masks, scores, whole, strengths, strict=True
        )
    ]


def draw_masks(n_tokens: int, n_samples: int) -> NDArray[np.bool_]:
    """Return which tokens each altered text keeps, (n_samples, n_tokens), in pairs.

    The number of tokens kept is as likely to be small as large. The same text always
    gets the same masks.

    >>> masks = draw_masks(5, 4)
    >>> (masks[:2] == ~masks[2:]).all(), masks.any(1).all()
    (np.True_, np.True_)
    """
    if n_tokens < 2:
        return np.zeros((0, n_tokens), dtype=bool)
    random = np.random.default_rng(n_tokens)
    ranks = random.random((n_samples // 2, n_tokens)).argsort(1)
    kept = ranks < random.integers(1, n_tokens, (n_samples // 2, 1))
    return np.concatenate([kept, ~kept])


def fit(
    masks: NDArray[np.bool_], scores: NDArray, whole: NDArray, given: NDArray
) -> NDArray[np.float64]:
    """Return the strengths (T, E) nearest to those given that explain the scores.

    Args:
        masks: (N, T).
        scores: (N, E), of the altered texts.
        whole: (E,), of the whole text.
        given: (T, E).
    """
    n_tokens, n_classes = given.shape
    total = given.sum(0, dtype=np.float64)
    # Contributions add up to the score but for biases; gradients and others do not.
    scale = np.divide(whole, total, out=np.ones(n_classes), where=total > 0)
    prior = given * np.clip(scale, 0.0, 2.0)
    rows = np.concatenate([masks, np.ones((1, n_tokens)), np.zeros((1, n_tokens))])
    values = np.concatenate([scores, whole[None], np.zeros((1, n_classes))])
    left = values - rows @ prior  # what the prior leaves unexplained
    rows, left = rows - rows.mean(0), left - left.mean(0)
    weight = (n_tokens / SURE_TOKENS) ** 2  # λ
    normal = rows.T @ rows + weight * np.eye(n_tokens)
    return prior + np.linalg.solve(normal, rows.T @ left)
