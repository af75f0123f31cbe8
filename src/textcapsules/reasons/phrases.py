"""From strengths of n-grams or tokens to phrases that a person can read.

Strong n-grams come in groups: the same words, shifted by one. So phrases are picked
greedily, the strongest first, and an n-gram that shares a token with a phrase already
picked is skipped. A phrase must speak for the label: its strength is above zero, and at
least `MIN_SHARE` of the strongest phrase's.

Where a method gives strengths of tokens, a phrase is any row of up to `LONGEST` tokens.
Each of its tokens must earn its place: the phrase has the sum of its tokens' strengths
less, for each token, a share of the strongest token's (`propose_phrases`).

A reader should not stumble over its ends (`tidy`): no punctuation mark or stop word at
an end unless it is strong itself, no word and no amount cut ("$167.25"), and a negation
stays with what it negates ("not angry").
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from textcapsules.reasons.strengths import NgramStrengths, Strengths

__all__ = ["MIN_SHARE", "PickedPhrases", "pick_phrases", "propose_phrases", "tidy"]

MIN_SHARE = 0.5  # of the strongest phrase's strength
LONGEST = 8  # tokens of a phrase
STRONG = 0.5  # share of its phrase's strongest token that keeps a stop word at an end
STOP_WORDS = frozenset(
    """
    a about after all also am an and any are as at be been before but by can could did
    do does each for from had has have he her here him his how i if into is it its
    just me more my of or our she should so some such than that the their them then
    there these they this those to too us very was we were what when where which
    while who will with would you your
    """.split()  # noqa: SIM905 (a page to read, not a list)
)
NEGATIONS = frozenset(
    """
    no not never nor neither none nobody nothing nowhere without hardly barely cannot
    cant dont doesnt didnt wont isnt arent wasnt n't
    """.split()  # noqa: SIM905
)
# Between two characters of these and others, words may be parted though they touch.
MARKS = frozenset(".,;:!?()[]{}<>\"'`“”‘’«»…/|-–—_*")
FIRST_UNSPACED = (
    "\u2e80"  # scripts from here on, and emoji, put no blanks between words
)


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


def propose_phrases(
    strengths: Strengths,
    n_tokens: NDArray[np.int64],
    top: int,
    *,
    price: float,
    against: bool = False,
) -> PickedPhrases:
    """Pick phrases by the strengths of tokens, or of n-grams if a method has only them.

    Args:
        strengths: of a batch.
        n_tokens: (B,), the tokens of each text.
        top: the largest number of phrases.
        price: share of the strongest token's strength that each token of a phrase
            must add; with more, phrases are shorter. Not used for n-grams.
        against: pick what speaks against a label instead.
    """
    if strengths.of_ngrams:
        return pick_phrases(strengths.ngrams, n_tokens, top)
    tokens = -strengths.tokens if against else strengths.tokens  # (B, T, E)
    T = tokens.shape[1]
    tokens = tokens - price * tokens.max(1, keepdims=True, initial=0)
    running = np.pad(tokens.cumsum(1), ((0, 0), (1, 0), (0, 0)))
    windows = [
        NgramStrengths(size, 1, running[:, size:] - running[:, :-size])
        for size in range(1, min(LONGEST, T) + 1)
    ]
    if not windows:
        return pick_phrases(strengths.ngrams, n_tokens, top)
    return pick_phrases(windows, n_tokens, top, min_share=0.0)


def tidy(
    text: str,
    places: Sequence[tuple[int, int]],
    strengths: Sequence[float] | NDArray,
    start: int,
    end: int,
) -> tuple[int, int]:
    """Return the tokens of a phrase with ends that a reader does not stumble over.

    Args:
        text: the whole text.
        places: where each of its tokens stands.
        strengths: of its tokens.
        start: the phrase's first token.
        end: the token after its last.

    >>> import re
    >>> text = "and I was not very happy with the $167.25, again"
    >>> places = [match.span() for match in re.finditer("[$,]|[a-zA-Z0-9.]+", text)]
    >>> def shown(start, end):
    ...     first, last = tidy(text, places, [0.1] * 5 + [1.0] + [0.1] * 6, start, end)
    ...     return text[places[first][0] : places[last - 1][1]]
    >>> shown(5, 8), shown(9, 11), shown(0, 1)
    ('not very happy', '$167.25', 'and')
    """
    words = [text[first:last].lower() for first, last in places]
    strongest = max(strengths[start:end], default=0.0)

    def is_weak(token: int) -> bool:
        if not any(map(str.isalnum, words[token])):
            return not is_glued(token) and not is_glued(token + 1)
        return words[token] in STOP_WORDS and strengths[token] < STRONG * strongest

    def is_glued(token: int) -> bool:
        """Tell whether a token belongs to the one before it, without a blank."""
        if not 0 < token < len(places) or places[token - 1][1] != places[token][0]:
            return False
        ends = text[places[token][0] - 1], text[places[token][0]]
        if words[token].startswith("n't") or words[token].startswith("'"):
            return ends[0].isalnum()
        return not any(mark in MARKS or mark >= FIRST_UNSPACED for mark in ends)

    while end - start > 1 and is_weak(end - 1):
        end -= 1
    while end - start > 1 and is_weak(start):
        start += 1
    for back in (start - 1, start - 2):
        if back >= 0 and is_negation(words[back]):
            start = back
        elif back < 0 or not words[back].isalpha():
            break
    while end < len(places) and is_negation(words[end - 1]):
        end += 1
    while is_glued(start):
        start -= 1
    while is_glued(end):
        end += 1
    return start, end


def is_negation(word: str) -> bool:
    """Tell whether a word turns what follows it into its opposite."""
    return word in NEGATIONS or word.endswith(("n't", "n’t"))
