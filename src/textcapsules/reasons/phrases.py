"""From strengths of n-grams or tokens to phrases that a person can read.

Strong n-grams come in groups: the same words, shifted by one. So phrases are picked
greedily, the strongest first, and an n-gram that shares a token with a phrase already
picked is skipped. A phrase must speak for the label: its strength is above zero, and at
least `MIN_SHARE` of the strongest phrase's.

Where a method gives strengths of tokens, a phrase is any row of up to `LONGEST` tokens.
Each of its tokens must earn its place: the phrase has the sum of its tokens' strengths
less, for each token, a share of the strongest token's (`propose_phrases`).

A reader should not stumble over its ends (`tidy`): no punctuation mark or function word
at an end unless it is strong itself, nothing at the end that asks for more ("paid
for"), no word and no amount cut ("$167.25"), and a negation stays with what it negates
("not angry").
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from textcapsules.reasons.strengths import NgramStrengths, Strengths
from textcapsules.text.function_words import (
    ASKING,
    LINKS,
    OF_VERBS,
    ends_phrase,
    is_function_word,
    is_negation,
)
from textcapsules.text.pieces import sentence_places

__all__ = [
    "MIN_SHARE",
    "PickedPhrases",
    "joints",
    "pick_phrases",
    "propose_phrases",
    "tidy",
]

MIN_SHARE = 0.5  # of the strongest phrase's strength
LONGEST = 8  # tokens of a phrase
STRONG = 0.5  # share of its phrase's strongest token that keeps a stop word at an end
# Between two characters of these and others, words may be parted though they touch.
MARKS = frozenset(".,;:!?()[]{}<>\"'`“”‘’«»…/|-–—_*")
# Inside a word or an amount they part nothing: "sign-in", "team's", "1,000.50".
WITHIN = re.compile(r"\w[-'’]\w|\d[.,:]\d")
FIRST_UNSPACED = (
    "\u2e80"  # scripts from here on, and emoji, put no blanks between words
)


# After a comma or such a sign, or before a word that links, a clause begins.
BEGINS_CLAUSE = (
    "after although and as soon as because before but if once or since so that though "
    "unless until when whereas whether which while yet"
)
JOINT = re.compile(
    r"[,;:](?=\s)|\s[-–—](?=\s)|\b(?:{})\b".format(
        BEGINS_CLAUSE.replace("as soon as", r"as\Wsoon\Was").replace(" ", "|")
    ),
    re.IGNORECASE,
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


def joints(text: str) -> list[int]:
    """Return the characters where sentences and clauses begin, in the text's order.

    >>> text = "It is slow, and the app closes when I sign in."
    >>> [text[place:][:7] for place in joints(text)]
    ['It is s', ' and th', 'and the', 'when I ']
    """
    starts = {start for start, _ in sentence_places(text)}
    for match in JOINT.finditer(text):
        is_word = match[0][0].isalpha()
        starts.add(match.start() if is_word else match.end())
    return sorted(starts)


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

    def is_sign(token: int) -> bool:
        return not any(map(str.isalnum, words[token]))

    def is_part(token: int) -> bool:
        """Tell whether a token is no word of its own."""
        return is_glued(token) or is_glued(token + 1)

    def is_weak(token: int) -> bool:
        says_little = is_function_word(words[token]) or words[token] in ASKING
        if is_part(token) or not says_little:
            return False
        return is_sign(token) or strengths[token] < STRONG * strongest

    def leaves_open(token: int) -> bool:
        """Tell whether a word at the end asks for more to follow: "paid for"."""
        follower = words[token + 1] if token + 1 < len(words) else ""
        return not is_part(token) and not ends_phrase(words[token], follower)

    def is_glued(token: int) -> bool:
        """Tell whether a token belongs to the one before it, without a blank."""
        if not 0 < token < len(places) or places[token - 1][1] != places[token][0]:
            return False
        at = places[token][0]
        before, after = text[at - 1], text[at]
        if words[token].startswith(("n't", "'")):
            return before.isalnum()
        if before in MARKS or after in MARKS:
            return WITHIN.match(text, at - 1 - (before in MARKS)) is not None
        return before < FIRST_UNSPACED and after < FIRST_UNSPACED

    def is_particle(token: int) -> bool:
        """Tell whether a word belongs to the verb before it: "log in"."""
        follower = words[token + 1] if token + 1 < len(words) else ""
        return words[token] in OF_VERBS and ends_phrase(words[token], follower)

    while end - start > 1 and (is_weak(end - 1) or leaves_open(end - 1)):
        end -= 1
    if end < len(places) and is_particle(end) and not is_function_word(words[end - 1]):
        end += 1
    while end - start > 1 and (is_weak(start) or words[start] in LINKS):
        start += 1 + (words[start : start + 3] == ["as", "soon", "as"]) * 2
    start = min(start, end - 1)
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
