"""Delete phrases and predict again: what a phrase is worth, whoever proposed it.

A method says where to look; what counts is how far a label's score falls without the
phrase. So every strength that is shown has been tried: the phrase is deleted from the
text, the model reads the rest, and the strength is the score before less the score
after. Anyone can check it with `predict`. One trial serves all labels at once.

An encoder reads sentences or clauses by themselves. There a phrase's pieces are
deleted and the sentences stay apart: without an "and" two clauses would run together,
and the fall would be that of another reading, not of the phrase.

For each label the candidates of all labels and of several lengths compete. The phrase
without which the score falls most comes first; in its place stands the shortest one
that overlaps it and explains nearly as much (`ENOUGH`). What overlaps a phrase already
taken is skipped.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from textcapsules.model.classifier import TextClassifier
from textcapsules.reasons.attributions import document_lengths
from textcapsules.reasons.phrases import joints
from textcapsules.text.pieces import PieceTokenizer, keep_pieces
from textcapsules.text.vocabulary import Located

__all__ = [
    "MIN_AGAINST",
    "MIN_FALL",
    "Chosen",
    "Place",
    "choose_places",
    "delete_pieces",
    "delete_places",
    "documents_without",
    "lengths_of_documents",
    "neighbours",
    "overlaps",
]

ENOUGH = 0.8  # share of a fall that a shorter phrase must reach to stand for a longer
MIN_SHARE = 0.15  # share of the largest fall that a reason must reach
EXPLAINED = 0.2  # share of a sentence's fall from which no further phrase is needed
MIN_FALL = 0.005  # smaller falls are those of any deleted word
MIN_AGAINST = 0.01  # and so are smaller rises

# A stretch of a text: its first character and the one after its last.
Place = tuple[int, int]


class Chosen(NamedTuple):
    """A stretch and how far a score falls without it."""

    place: Place
    fall: float


def delete_places(text: str, places: Sequence[Place]) -> str:
    """Return a text without some stretches; what stood around them does not join.

    >>> delete_places("It is not good, really.", [(6, 14)])
    'It is  , really.'
    """
    parts, done = [], 0
    for start, end in sorted(places):
        parts.append(text[done : max(start, done)])
        done = max(done, end)
    return " ".join([*parts, text[done:]])


def documents_without(
    classifier: TextClassifier, text: str, located: Located, places: Sequence[Place]
) -> list[NDArray[np.int32]]:
    """Return what the model reads of a text without each of some stretches.

    Args:
        classifier: the model.
        text: as far as it is read.
        located: its tokens.
        places: deleted one at a time.
    """
    tokenizer = classifier.tokenizer
    if isinstance(tokenizer, PieceTokenizer):
        return [delete_pieces(located, each, tokenizer.n_pieces) for each in places]
    return classifier.encode([delete_places(text, [each]) for each in places])


def delete_pieces(located: Located, place: Place, n_pieces: int) -> NDArray[np.int32]:
    """Return the rows of pieces outside a stretch; sentences begin where they did.

    The first piece left of a sentence has the row of one that begins it.

    >>> rows = np.array([2 + 5 + 1, 2 + 3, 2 + 5 + 0, 2 + 4])  # of 5 pieces
    >>> located = Located(rows, [(0, 2), (3, 5), (6, 8), (9, 11)])
    >>> delete_pieces(located, (6, 8), 5).tolist()
    [8, 5, 11]
    """
    start, end = place
    left = np.array([b <= start or end <= a for a, b in located.places], dtype=bool)
    return keep_pieces(located.ids, left, n_pieces)


def lengths_of_documents(
    classifier: TextClassifier, documents: Sequence[NDArray[np.int32]]
) -> NDArray[np.float32]:
    """Return the lengths (N, E) of all classes, the orphan's last where there is one.

    A model without capsules has scores in place of lengths.
    """
    if not documents:
        return np.zeros((0, len(classifier.labels.names)), dtype=np.float32)
    return document_lengths(classifier.network, documents)


def choose_places(
    places: Sequence[Place],
    falls: NDArray[np.float32],
    top: int,
    *,
    least: float = MIN_FALL,
    sentences: Mapping[Place, float] | None = None,
) -> list[Chosen]:
    """Return the stretches that a score depends on most, none overlapping another.

    Args:
        places: all that were tried.
        falls: (N,), how far the score falls without each; negated, to find what speaks
            against the label.
        top: the largest number of stretches.
        least: what a fall must reach; it must be above zero in any case.
        sentences: where the sentences stand, and how far the score falls without
            each. If given, one phrase speaks for a sentence that it explains.
    """
    if not len(places):
        return []
    floor = MIN_SHARE * float(falls.max())
    order = np.argsort(-falls, kind="stable").tolist()
    chosen: list[Chosen] = []
    for number in order:
        if (
            len(chosen) == top
            or falls[number] < max(floor, least)
            or falls[number] <= 0
        ):
            break
        if overlaps(places[number], [each.place for each in chosen]):
            continue
        if is_explained(places[number], chosen, sentences or {}):
            continue
        rivals = [
            (end - start, start, other)
            for other, (start, end) in enumerate(places)
            if falls[other] >= ENOUGH * falls[number]
            and overlaps((start, end), [places[number]])
            and not overlaps((start, end), [each.place for each in chosen])
        ]
        _, _, best = min(rivals)
        chosen.append(Chosen(places[best], float(falls[best])))
    return sorted(chosen, key=lambda each: -each.fall)


def is_explained(
    place: Place, chosen: Sequence[Chosen], sentences: Mapping[Place, float]
) -> bool:
    """Tell whether phrases already chosen explain the sentence of a place.

    Without the words that matter the rest of a sentence says little, so that almost
    any other part of it seems to matter nearly as much.
    """
    return any(
        EXPLAINED * fall <= sum(each.fall for each in inside)
        for whole, fall in sentences.items()
        if overlaps(place, [whole])
        and (inside := [each for each in chosen if overlaps(each.place, [whole])])
    )


def overlaps(place: Place, others: Sequence[Place]) -> bool:
    """Tell whether a stretch shares a character with any of some others."""
    return any(place[0] < end and start < place[1] for start, end in others)


def neighbours(places: Sequence[Place], text: str) -> Iterator[Place]:
    """Yield what two stretches make together, where hardly anything parts them."""
    ordered, cuts = sorted(places), joints(text)
    for (start, end), (after, last) in pairwise(ordered):
        between = text[end:after]
        is_cut = any(end <= cut <= after for cut in cuts)
        if after >= end and len(between.split()) <= 1 and not is_cut:
            yield start, last
