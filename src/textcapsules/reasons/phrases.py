"""From strengths of n-grams to a ranked list of phrases that a person can read.

Strong n-grams come in groups: the same words, shifted by one. So phrases are picked
greedily, the strongest first, and an n-gram that shares a token with a phrase already
picked is skipped. N-grams of all sizes compete with each other, unless one size alone
is asked for. A phrase must speak for the label: its strength is above zero, and at
least `MIN_SHARE` of the strongest phrase's.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from textcapsules.reasons.explanation import Phrase
from textcapsules.reasons.strengths import NgramStrengths

__all__ = ["MIN_SHARE", "PickedPhrases", "cut_phrases", "pick_phrases"]

MIN_SHARE = 0.5  # of the strongest phrase's strength


class PickedPhrases(NamedTuple):
    """Phrases of a batch as token ranges, strongest first; strength 0 past the last."""

    starts: NDArray[np.int64]  # (B, E, R)
    ends: NDArray[np.int64]  # (B, E, R)
    strengths: NDArray[np.float32]  # (B, E, R)
    sizes: NDArray[np.int64]  # (B, E, R)


def pick_phrases(
    ngrams: Sequence[NgramStrengths],
    n_tokens: NDArray[np.int64],
    top: int,
    min_share: float = MIN_SHARE,
) -> PickedPhrases:
    """Pick phrases for every text and class at once.

    Args:
        ngrams: strengths (B, P, E) of n-grams, of one size or several.
        n_tokens: (B,), the tokens of each text; n-grams must lie inside it. Those that
            may reach over its ends are cut there.
        top: the largest number of phrases.
        min_share: share of the strongest phrase's strength that the others must reach.
    """
    values = np.concatenate([each.values for each in ngrams], 1).swapaxes(1, 2)
    first, sizes, cut = place_ngrams(ngrams)  # (M,)
    starts = np.maximum(first, 0)
    ends = np.minimum(first + sizes, n_tokens[:, None])[:, None]  # (B, 1, M)
    # In a text shorter than the n-gram, the first one counts: the text as a whole.
    inside = (first + sizes == ends) | ((cut | (first == 0)) & (ends > starts))
    left = np.where(inside & (values > 0), values, 0)  # (B, E, M)
    floor = min_share * left.max(-1, initial=0)  # (B, E)
    picked = []
    for _ in range(top):
        best = left.argmax(-1, keepdims=True)  # (B, E, 1)
        strength = np.take_along_axis(left, best, -1)
        strength *= strength >= floor[..., None]
        if not strength.any():
            break
        start = starts[best]
        end = np.minimum((first + sizes)[best], n_tokens[:, None, None])
        picked.append((start, end, strength, sizes[best]))
        left = np.where((starts < end) & (ends > start), 0, left)
    if not picked:
        empty = np.zeros((*values.shape[:2], 0), dtype=np.int64)
        return PickedPhrases(empty, empty, empty.astype(np.float32), empty)
    return PickedPhrases(
        *(np.concatenate(parts, -1) for parts in zip(*picked, strict=True))
    )


def place_ngrams(
    ngrams: Sequence[NgramStrengths],
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Return where every n-gram begins, its size, and if ends may cut it, (M,) each."""
    counts = [each.values.shape[1] for each in ngrams]
    starts = [
        each.first + np.arange(count) * each.stride
        for count, each in zip(counts, ngrams, strict=True)
    ]
    sizes = np.repeat([each.size for each in ngrams], counts)
    cut = np.repeat([each.first < 0 for each in ngrams], counts)
    return np.concatenate(starts), sizes, cut


def cut_phrases(
    text: str,
    places: Sequence[tuple[int, int]],
    picked: PickedPhrases,
    row: int,
    column: int,
    *,
    whole_words: bool = False,
) -> tuple[Phrase, ...]:
    """Cut the phrases of one class out of one text of the batch.

    Args:
        text: the whole text.
        places: where each of its tokens stands.
        picked: phrases of the batch.
        row: the place of the text in the batch.
        column: the place of the class among the classes.
        whole_words: widen a phrase whose tokens are pieces of words to whole words.
    """
    phrases = []
    for start, end, strength, size in zip(
        *(part[row, column].tolist() for part in picked), strict=True
    ):
        if strength <= 0:
            break
        first, last = places[start][0], places[end - 1][1]
        if whole_words:
            first, last = widen_to_words(text, first, last)
        phrases.append(Phrase(text[first:last], first, last, strength, size))
    return tuple(phrases)


def widen_to_words(text: str, first: int, last: int) -> tuple[int, int]:
    """Move both ends of a phrase outwards until none lies inside a word.

    >>> text = "an unbelievable film"
    >>> first, last = widen_to_words(text, 5, 9)
    >>> text[first:last]
    'unbelievable'
    """
    while first > 0 and text[first - 1].isalnum() and text[first].isalnum():
        first -= 1
    while last < len(text) and text[last - 1].isalnum() and text[last].isalnum():
        last += 1
    return first, last
