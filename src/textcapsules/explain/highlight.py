"""A text cut into stretches, each with the labels whose phrases cover it.

Phrases of different labels may overlap in any way. The cuts are at all their ends, so
that a stretch has one set of labels and can be drawn as one piece.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from textcapsules.explain.palette import N_COLOURS, TINTS, label_style
from textcapsules.explain.types import Explanation, LabelExplanation, Phrase

__all__ = ["Highlight", "Mark", "ShownLabel", "Stretch", "cut_text", "highlight"]


class Mark(NamedTuple):
    """One label's claim on a stretch."""

    number: int  # of the label in the text's list, from 1
    colour: int
    line: str
    lane: int  # which line under the text: labels that overlap have different ones
    level: int  # 1 to 3: how strong beside the label's strongest phrase
    ends: bool  # whether the label's claim ends with this stretch


class Stretch(NamedTuple):
    """A piece of the text and its marks, strongest first."""

    text: str
    marks: tuple[Mark, ...]


class ShownLabel(NamedTuple):
    """A label in the list below the text."""

    number: int
    colour: int
    line: str
    label: str
    score: float
    verdict: str  # "", "right", "wrong" or "missed"; "" where the truth is not known
    phrases: tuple[Phrase, ...]


class Highlight(NamedTuple):
    """A text ready to be drawn."""

    stretches: tuple[Stretch, ...]
    labels: tuple[ShownLabel, ...]
    known: int  # of the words read
    words: int


def highlight(
    explanation: Explanation, *, top: int = 4, longest: int | None = None
) -> Highlight:
    """Return the text with the `top` phrases of each predicted or true label marked.

    A text longer than `longest` characters is shown to there; its list stays whole.
    """
    true = explanation.true or ()
    names = [label.label for label in explanation.labels]
    wanted = dict.fromkeys((*explanation.predicted, *true))
    places = [names.index(name) for name in wanted if name in names]
    shown = []
    for place, style in zip(places, pick_styles(places), strict=True):
        label, number = explanation.labels[place], len(shown) + 1
        verdict = "" if explanation.true is None else judge(label, true)
        phrases = tuple(p for p in label.phrases if p.strength > 0)[:top]
        shown.append(
            ShownLabel(number, *style, label.label, label.score, verdict, phrases)
        )
    stretches = cut_text(explanation.text[:longest], shown)
    if longest is not None and len(explanation.text) > longest:
        stretches = (*stretches, Stretch("…", ()))
    return Highlight(stretches, tuple(shown), explanation.known, explanation.words)


def pick_styles(places: Sequence[int]) -> list[tuple[int, str]]:
    """Return each label's own colour, or the next that is free in this text."""
    styles: list[tuple[int, str]] = []
    for colour, line in map(label_style, places):
        taken = {other for other, _ in styles}
        turn = [(colour + step) % N_COLOURS for step in range(N_COLOURS)]
        styles.append((next((c for c in turn if c not in taken), colour), line))
    return styles


def judge(label: LabelExplanation, true: Sequence[str]) -> str:
    """Say whether a label was rightly predicted, wrongly, or missed."""
    if not label.predicted:
        return "missed"
    return "right" if label.label in true else "wrong"


def cut_text(text: str, labels: Sequence[ShownLabel]) -> tuple[Stretch, ...]:
    """Cut a text at the ends of the labels' phrases."""
    ends = {end for label in labels for p in label.phrases for end in (p.start, p.end)}
    cuts = sorted({0, len(text), *(end for end in ends if end < len(text))})
    spans = list(pairwise(cuts))
    levels = [[label_level(label, *span) for label in labels] for span in spans]
    lanes = pick_lanes(levels)
    levels.append([0] * len(labels))  # after the last, nothing is claimed
    stretches = []
    for place, (start, end) in enumerate(spans):
        marks = [
            Mark(label.number, label.colour, label.line, lane, level, not after)
            for label, lane, level, after in zip(
                labels, lanes, levels[place], levels[place + 1], strict=True
            )
            if level
        ]
        marks.sort(key=lambda mark: -mark.level)
        stretches.append(Stretch(text[start:end], tuple(marks)))
    return tuple(stretches)


def pick_lanes(levels: Sequence[Sequence[int]]) -> list[int]:
    """Give each label (columns) the first lane that no label it meets has taken."""
    columns = zip(*levels, strict=True)
    claims = [{row for row, level in enumerate(c) if level} for c in columns]
    lanes: list[int] = []
    for place, claim in enumerate(claims):
        taken = {lanes[other] for other in range(place) if claims[other] & claim}
        lanes.append(next(lane for lane in range(place + 1) if lane not in taken))
    return lanes


def label_level(label: ShownLabel, start: int, end: int) -> int:
    """Return how strongly a label claims a stretch, 0 where it does not.

    The levels part the way from nothing to the label's strongest phrase evenly; a label
    that was missed had too weak phrases, and never gets past the first.
    """
    over = [p.strength for p in label.phrases if p.start <= start and end <= p.end]
    if not over:
        return 0
    if label.verdict == "missed":
        return 1
    share = max(over) / max(phrase.strength for phrase in label.phrases)
    return min(len(TINTS), 1 + int(share * len(TINTS)))
