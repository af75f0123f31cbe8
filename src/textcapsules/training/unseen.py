"""Teach a network that a word it has never seen is no evidence for any label.

The row of the unknown word is trained only if training texts contain it. Two draws per
epoch bring it in: words become unknown, rare ones most often, in texts that keep their
labels; and blank texts, unknown words among words that say nothing about any label,
carry no label at all.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textcapsules.config import TrainConfig
from textcapsules.text.vocabulary import UNK_ID
from textcapsules.training.prepare import Encoded

__all__ = [
    "UnseenWords",
    "blank_documents",
    "drop_chances",
    "drop_words",
    "neutral_words",
]

# A neutral word is in at least this share of the texts, and does not multiply the odds
# of any label by more than this factor.
LEAST_SHARE, MOST_FACTOR = 0.01, 2.0


class UnseenWords:
    """Brings the unknown word into the texts of an epoch, as the options say."""

    def __init__(self, options: TrainConfig, train: Encoded) -> None:
        self.options, self.train = options, train

    @cached_property
    def chances(self) -> NDArray[np.float64]:
        """Each word's chance to become unknown, (W,)."""
        return drop_chances(self.train.documents, self.options.word_dropout or 0.0)

    @cached_property
    def is_neutral(self) -> NDArray[np.bool_]:
        """Which words say nothing about any label, (W,)."""
        return neutral_words(*self.train)

    def add(self, drawn: Encoded, epoch: int) -> Encoded:
        """Return an epoch's texts with unknown words in them, and blank ones behind.

        What is drawn depends on the seed and the epoch alone.
        """
        (documents, targets), options = drawn, self.options
        if options.word_dropout:
            seed = [options.seed, epoch, 2]
            documents = drop_words(documents, self.chances, seed)
        if options.blank:
            n_blank = round(options.blank * len(self.train.documents))
            seed = [options.seed, epoch, 3]
            blanks = blank_documents(
                self.train.documents, self.is_neutral, n_blank, seed
            )
            no_label = np.zeros((len(blanks), targets.shape[1]), targets.dtype)
            documents = [*documents, *blanks]
            targets = np.concatenate([targets, no_label])
        return Encoded(documents, targets)


def drop_chances(documents: Sequence[NDArray], alpha: float) -> NDArray[np.float64]:
    """Return each word's chance to become unknown: alpha / (alpha + its count).

    >>> drop_chances([np.array([2, 3, 3, 3])], 1.0).tolist()
    [0.0, 0.0, 0.5, 0.25]
    """
    ids = np.concatenate([np.zeros(0, np.int32), *documents])
    counts = np.bincount(ids, minlength=UNK_ID + 1)
    chances = np.zeros(len(counts))
    words = slice(UNK_ID + 1, None)
    chances[words] = alpha / (alpha + np.maximum(counts[words], 1))
    return chances


def drop_words(
    documents: Sequence[NDArray[np.int32]], chances: NDArray, seed: Any
) -> list[NDArray[np.int32]]:
    """Return the documents with some words made unknown, each token drawn for itself.

    A document always keeps a known word: one without is never scored.
    """
    ids = np.concatenate([np.zeros(0, np.int32), *documents])
    drawn = np.random.default_rng(seed).random(len(ids)) < chances[ids]
    changed = np.where(drawn, np.int32(UNK_ID), ids)
    ends = np.cumsum([len(document) for document in documents], dtype=np.int64)
    parts = np.split(changed, ends)[: len(documents)]
    return [
        new if (new > UNK_ID).any() else old
        for new, old in zip(parts, documents, strict=True)
    ]


def neutral_words(documents: Sequence[NDArray], targets: NDArray) -> NDArray[np.bool_]:
    """Return which words (W,) are frequent and say nothing about any label.

    Among the texts that contain such a word, every label is about as frequent as among
    all texts: its odds are at most `MOST_FACTOR` times as high.
    """
    n_texts, n_words = len(targets), max(map(max_id, documents), default=0) + 1
    texts, labels = np.zeros(n_words), np.zeros((n_words, targets.shape[1]))
    for ids, row in zip(documents, targets, strict=True):
        words = np.unique(ids)
        texts[words] += 1
        labels[words] += row
    without = texts[:, None] - labels  # (W, J)
    n_with = targets.sum(0)  # (J,)
    # labels / without <= factor * n_with / (n_texts - n_with), without a division by 0
    is_even = labels * (n_texts - n_with) <= MOST_FACTOR * without * n_with
    is_neutral = is_even.all(1) & (texts >= max(LEAST_SHARE * n_texts, 1))
    is_neutral[: UNK_ID + 1] = False
    return is_neutral


def max_id(ids: NDArray) -> int:
    """Return the highest row number of a document, the unknown word's at least."""
    return int(ids.max(initial=UNK_ID))


def blank_documents(
    documents: Sequence[NDArray[np.int32]],
    is_neutral: NDArray[np.bool_],
    n_blank: int,
    seed: Any,
) -> list[NDArray[np.int32]]:
    """Return documents without evidence: unknown words, neutral ones among them.

    Each is a stretch of a training text in which a drawn share of the neutral words
    stays, at least one of them, and every other word is unknown. Returns none where no
    word is neutral.
    """
    sources = [ids for ids in documents if len(ids)]
    neutral = np.flatnonzero(is_neutral)
    if not len(neutral) or not sources:
        return []
    random = np.random.default_rng(seed)
    blanks = []
    for source in random.integers(len(sources), size=n_blank):
        ids = sources[source]
        length = int(random.integers(1, len(ids) + 1))
        start = int(random.integers(len(ids) - length + 1))
        stretch = ids[start : start + length]
        kept = is_neutral[stretch] & (random.random(length) < random.random())
        blank = np.where(kept, stretch, np.int32(UNK_ID))
        if not kept.any():
            blank[random.integers(length)] = random.choice(neutral)
        blanks.append(blank)
    return blanks
