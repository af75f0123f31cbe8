"""What would change it: a small deletion that turns a label's decision round.

A given label is taken away, or one that was not given is given. Phrases and sentences
are deleted one after the other, those that moved the score most first, until the model
decides otherwise; then whatever need not be deleted is put back. Every step is a
prediction, so what is returned has been tried. It is small, but it need not be the
smallest: that would take a trial of every set of words.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from textcapsules.model.classifier import TextClassifier
from textcapsules.reasons.explanation import (
    Change,
    Explanation,
    LabelExplanation,
    Sentence,
)
from textcapsules.reasons.trials import Place, delete_places, overlaps

__all__ = ["find_change"]

MAX_STEPS = 20  # deletions one after the other


def find_change(
    classifier: TextClassifier,
    explanation: Explanation,
    label: str,
    *,
    multi_label: bool | None = None,
    threshold: float | None = None,
) -> Change | None:
    """Return a small deletion that turns a label's decision round, or None.

    Args:
        classifier: that was explained.
        explanation: of one text, its phrases tried.
        label: given or not.
        multi_label: as for `explain`.
        threshold: as for `explain`.
    """
    column = classifier.labels.names.index(label)
    found = explanation.labels[column]
    if not explanation.tokens:
        return None
    read = explanation.text[: explanation.tokens[-1].end]

    def turned(sets: Sequence[Sequence[Place]]) -> tuple[list[bool], list[float]]:
        """Tell which sets of deletions turn the decision round; and the scores."""
        scores = classifier.scores([delete_places(read, each) for each in sets])
        decided = classifier.decide(
            scores, multi_label=multi_label, threshold=threshold
        )
        # Nothing is learnt from a text of which no known word is left.
        is_read = (scores > 0).any(1)
        turns = (decided[:, column] != found.predicted) & is_read
        return turns.tolist(), scores[:, column].tolist()

    if multi_label is None:
        multi_label = classifier.labels.task == "multi-label" or threshold is not None
    rows = deletion_rows(explanation, found, column, rivals=not multi_label)
    sets = [row[:n] for row in rows for n in range(1, len(row) + 1)]
    if not sets:
        return None
    turns, _ = turned(sets)
    working = [each for each, turn in zip(sets, turns, strict=True) if turn]
    if not working:
        return None
    deleted = list(min(working, key=size))
    while len(deleted) > 1:
        without = [deleted[:n] + deleted[n + 1 :] for n in range(len(deleted))]
        turns, _ = turned(without)
        working = [each for each, turn in zip(without, turns, strict=True) if turn]
        if not working:
            break
        deleted = min(working, key=size)
    _, (score,) = turned([deleted])
    return Change(tuple(sorted(deleted)), score)


def deletion_rows(
    explanation: Explanation, label: LabelExplanation, column: int, *, rivals: bool
) -> list[list[Place]]:
    """Return rows of deletions to try from their start on: phrases, sentences, both.

    Args:
        explanation: of the text.
        label: whose decision is to be turned round.
        column: its place among the labels.
        rivals: whether the label must beat the others rather than a threshold.
    """
    scores = np.array([each.score for each in explanation.labels])

    def lead(scores: NDArray[np.float64]) -> float:
        others = np.delete(scores, column).max() if rivals else 0.0
        return float(scores[column] - others)

    sign = 1 if label.predicted else -1
    moves = [  # how far each deletion moves the lead the right way
        (sign * (lead(scores) - lead(scores - each.falls)), (each.start, each.end))
        for each in explanation.trials
    ]
    useful = [move for move in sorted(moves, key=lambda each: -each[0]) if move[0] > 0]
    phrases: list[Place] = []
    for _, place in useful:
        if not overlaps(place, phrases):
            phrases.append(place)

    def standing(sentence: Sentence) -> float:
        """Return how much of the decision rests on a sentence."""
        if label.predicted:
            return sentence.falls[label.label]
        pairs = zip(explanation.tokens, label.tokens, strict=True)
        return -sum(
            strength
            for token, strength in pairs
            if sentence.start <= token.start < sentence.end
        )

    ranked = sorted(explanation.sentences, key=standing, reverse=True)
    sentences = [(each.start, each.end) for each in ranked]
    both = [*phrases, *(each for each in sentences if not overlaps(each, phrases))]
    rows = [phrases, sentences[:-1], both]
    return [*([place] for _, place in useful), *(row[:MAX_STEPS] for row in rows)]


def size(places: Sequence[Place]) -> int:
    """Return how many characters are deleted."""
    return sum(end - start for start, end in places)
