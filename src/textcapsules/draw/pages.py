"""Explanations as pages: values in, HTML out, self-contained, everything escaped.

`highlight` cuts a text into stretches, each with the labels whose phrases cover it.
Phrases of different labels may overlap in any way. The text is cut at the ends of all
phrases, so that a stretch has one set of labels and can be drawn as one piece.

Templates hold markup only. Pictures are inside the page as SVG; matrices are tables, so
that they can be read aloud, searched, and shown in the reader's colours.
"""

from base64 import b64encode
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from textcapsules import __version__
from textcapsules.draw.palette import DARK, LIGHT, TINTS, label_style, label_tags
from textcapsules.draw.pictures import draw_histograms
from textcapsules.reasons.explanation import (
    ORPHAN,
    Explanation,
    LabelExplanation,
    Phrase,
    format_strength,
)
from textcapsules.reasons.routing_inspection import Connections
from textcapsules.text.tokenize import valid_unicode

__all__ = [
    "BACKGROUND",
    "HEAT",
    "Cells",
    "Figure",
    "Highlight",
    "ListedLabel",
    "Mark",
    "Picture",
    "Stretch",
    "colophon",
    "connection_histograms",
    "cut_text",
    "highlight",
    "phrase_matrix",
    "reading_help",
    "render",
    "render_explanations",
    "render_highlight",
    "render_predictions",
    "shade_cells",
]

if TYPE_CHECKING:
    from jinja2 import Environment

BACKGROUND = "background"  # what the orphan category is called on pages
HEAT = 45  # percentage of the accent in the darkest cell: ink stays readable on it


class Mark(NamedTuple):
    """One label's claim on a stretch."""

    number: int  # of the label in the text's list, from 1
    colour: int
    line: str
    lane: int  # which line under the text: labels that overlap have different ones
    level: int  # 1 to 3: how strong beside the label's strongest phrase
    ends: bool  # whether the label's claim ends with this stretch
    tag: str = ""  # the label's one or two letters


class Stretch(NamedTuple):
    """A piece of the text and its marks, strongest first."""

    text: str
    marks: tuple[Mark, ...]


class ListedLabel(NamedTuple):
    """A label in the list below the text."""

    number: int
    colour: int
    line: str
    label: str
    score: float
    verdict: str  # "", "right", "wrong" or "missed"; "" where the truth is not known
    phrases: tuple[Phrase, ...]
    tag: str = ""  # one or two letters, the same in all texts


class Highlight(NamedTuple):
    """A text ready to be drawn."""

    stretches: tuple[Stretch, ...]
    labels: tuple[ListedLabel, ...]
    known: int  # of the words read
    words: int
    unclaimed: float | None = None  # share of the text that no label claimed
    background: float | None = None  # and that the background did
    outside: bool = False  # of the training topics


def highlight(
    explanation: Explanation, *, top: int = 4, longest: int | None = None
) -> Highlight:
    """Return the text with the `top` phrases of each predicted or true label marked.

    Of a text longer than `longest` characters only the beginning is shown; the list of
    labels and phrases stays whole.
    """
    true = explanation.true or ()
    names = [label.label for label in explanation.labels]
    tags = label_tags(names)
    wanted = dict.fromkeys((*explanation.predicted, *true))
    places = [names.index(name) for name in wanted if name in names]
    listed = []
    for number, place in enumerate(places, start=1):
        label = explanation.labels[place]
        verdict = "" if explanation.true is None else judge(label, true)
        phrases = tuple(p for p in label.phrases if p.strength > 0)[:top]
        named = (label.label, label.score, verdict, phrases, tags[place])
        listed.append(ListedLabel(number, *label_style(place), *named))
    stretches = cut_text(explanation.text[:longest], listed)
    if longest is not None and len(explanation.text) > longest:
        stretches = (*stretches, Stretch("…", ()))
    return Highlight(
        stretches,
        tuple(listed),
        explanation.known,
        explanation.words,
        explanation.leak,
        explanation.orphan_share,
        explanation.outside,
    )


def judge(label: LabelExplanation, true: Sequence[str]) -> str:
    """Say whether a label was rightly predicted, wrongly, or missed."""
    if not label.predicted:
        return "missed"
    return "right" if label.label in true else "wrong"


def cut_text(text: str, labels: Sequence[ListedLabel]) -> tuple[Stretch, ...]:
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
            Mark(
                label.number,
                label.colour,
                label.line,
                lane,
                level,
                ends=not after,
                tag=label.tag,
            )
            for label, lane, level, after in zip(
                labels, lanes, levels[place], levels[place + 1], strict=True
            )
            if level
        ]
        marks.sort(key=lambda mark: -mark.level)
        stretches.append(Stretch(text[start:end], tuple(marks)))
    return tuple(stretches)


def pick_lanes(levels: Sequence[Sequence[int]]) -> list[int]:
    """Give each label (columns) the first lane that no overlapping label has taken."""
    columns = zip(*levels, strict=True)
    claims = [{row for row, level in enumerate(c) if level} for c in columns]
    lanes: list[int] = []
    for place, claim in enumerate(claims):
        taken = {lanes[other] for other in range(place) if claims[other] & claim}
        lanes.append(next(lane for lane in range(place + 1) if lane not in taken))
    return lanes


def label_level(label: ListedLabel, start: int, end: int) -> int:
    """Return how strongly a label claims a stretch, 0 where it does not.

    The levels divide the range from zero to the label's strongest phrase evenly. The
    phrases of a missed label were too weak, so they stay at the first level.
    """
    covering = [p.strength for p in label.phrases if p.start <= start and end <= p.end]
    if not covering:
        return 0
    if label.verdict == "missed":
        return 1
    share = max(covering) / max(phrase.strength for phrase in label.phrases)
    return min(len(TINTS), 1 + int(share * len(TINTS)))


class Figure(NamedTuple):
    """A number at the head of a page."""

    name: str
    value: str


class Picture(NamedTuple):
    """An SVG, and words for those who cannot see it."""

    image: bytes
    alt: str
    caption: str = ""


class Cell(NamedTuple):
    """A cell's text and how dark it is, 0 to 1."""

    text: str
    shade: float


class Row(NamedTuple):
    """A named row of cells."""

    name: str
    cells: list[Cell]


class Cells(NamedTuple):
    """A matrix to be shown as a shaded table."""

    columns: Sequence[str]
    rows: list[Row]


class ExplanationPage(NamedTuple):
    """What the template of some explained texts shows."""

    title: str
    lead: str
    reading: str
    texts: list[Highlight]
    heat_map: Cells | None
    heat_caption: str
    histograms: Picture | None
    colophon: str
    figures: tuple[Figure, ...] = ()


def render_explanations(
    explanations: Sequence[Explanation],
    *,
    title: str = "Which phrases spoke for each label",
    lead: str = "",
    top: int = 5,
    connections: Connections | None = None,
) -> str:
    """Return a page of highlighted texts.

    Args:
        explanations: of the texts; a single one gets a matrix of phrases and labels.
        title: of the page.
        lead: a few sentences below the title.
        top: the largest number of phrases marked per label.
        connections: of a single text, to be drawn as histograms.
    """
    heat_map = histograms = None
    if len(explanations) == 1 and explanations[0].predicted:
        phrases, labels, strengths = phrase_matrix(explanations[0], top=top)
        if len(phrases) > 1 and len(labels) > 1:  # else the list below the text says it
            heat_map = shade_cells(phrases, labels, strengths)
        if connections is not None:
            names = [label.label for label in explanations[0].labels]
            histograms = connection_histograms(
                connections, explanations[0].predicted, names
            )
    page = ExplanationPage(
        title=title,
        lead=lead,
        reading=reading_help(explanations[0].method) if explanations else "",
        texts=[highlight(explanation, top=top) for explanation in explanations],
        heat_map=heat_map,
        heat_caption="How far the score of each label (columns) falls without each "
        "phrase (rows).",
        histograms=histograms,
        colophon=colophon(),
    )
    return render("explanations.html.j2", page=page)


def render_highlight(explanation: Explanation, *, top: int = 5) -> str:
    """Return a part of a page for a notebook: the text with its phrases marked."""
    return render("notebook.html.j2", text=highlight(explanation, top=top))


class PredictedLabel(NamedTuple):
    """A label of a prediction, as a notebook shows it."""

    label: str
    colour: int
    line: str
    score: float | None  # None where the scores have no names


def render_predictions(predictions: Sequence[Any], n_all: int) -> str:
    """Return a part of a page for a notebook: each text's labels and their scores.

    Args:
        predictions: the first ones (`model.classifier.Prediction`).
        n_all: how many there are.
    """
    rows = []
    for each in predictions:
        places = {name: place for place, name in enumerate(each.names)}
        row = []
        for label in each.labels:
            place = places.get(label)
            score = None if place is None else float(each.scores[place])
            row.append(PredictedLabel(label, *label_style(place or 0), score))
        rows.append((row, each.outside))
    more = n_all - len(rows)
    return render("predictions.html.j2", rows=rows, more=more)


def phrase_matrix(
    explanation: Explanation, *, top: int = 5
) -> tuple[list[str], list[str], NDArray]:
    """Return the strongest phrases of the predicted labels, labels, and strengths.

    A strength is how far the label's score falls without the phrase, the same number
    as in the text. Where nothing was tried, it is the one in the label's own list, and
    NaN where that lacks the phrase. Labels without a number are left out. The matrix is
    (phrases, labels).
    """
    chosen = [label for label in explanation.labels if label.predicted]
    phrases = {
        (p.start, p.end): p
        for label in chosen
        for p in label.phrases[:top]
        if p.strength > 0
    }
    places = sorted(phrases)
    tried = {(each.start, each.end): each.falls for each in explanation.trials}
    columns: dict[str, list[float]] = {}
    for number, label in enumerate(explanation.labels):
        own = {(p.start, p.end): p.strength for p in label.phrases}
        own |= {place: tried[place][number] for place in places if place in tried}
        if own.keys() & phrases.keys():
            columns[label.label] = [own.get(place, np.nan) for place in places]
    strengths = np.array(list(columns.values())).T
    return [phrases[place].text for place in places], list(columns), strengths


def connection_histograms(
    connections: Connections, predicted: Sequence[str], labels: Sequence[str]
) -> Picture:
    """Draw a text's connection strengths for its labels and the background.

    It is the bottom row of the paper's table 6.

    Args:
        connections: the strengths of its n-grams.
        predicted: the predicted labels; the first four are shown.
        labels: all of the model's, for their colours.
    """
    places = {name: labels.index(name) for name in predicted[:4]}
    names = [name for name in (*places, ORPHAN) if name in connections.strengths]
    shown = {BACKGROUND if n == ORPHAN else n: connections.strengths[n] for n in names}
    image = draw_histograms(shown, connections.phrases, places=places)
    caption = (
        "Connection strength of every n-gram of the text, in its order: one panel per "
        "predicted label, and one for the background where the model has one."
    )
    return Picture(image, f"{caption} Shown: {', '.join(shown)}.", caption)


def shade_cells(
    rows: Sequence[str],
    columns: Sequence[str],
    values: NDArray,
    *,
    shades: NDArray | None = None,
    blank: float = np.nan,
) -> Cells:
    """Return a shaded table, by default the darker the larger.

    Cells of NaN, and of the value `blank`, have no text.
    """
    values = np.asarray(values)
    present = np.nan_to_num(values)
    if shades is None:
        shades = np.clip(present, 0, None) / max(float(present.max(initial=0)), 1e-12)
    form = str if values.dtype.kind in "iu" else format_strength
    texts = [
        ["" if np.isnan(v) or v == blank else form(v) for v in row]
        for row in values.tolist()
    ]
    return Cells(
        list(columns),
        [
            Row(name, [Cell(t, float(s)) for t, s in zip(*pair, strict=True)])
            for name, pair in zip(rows, zip(texts, shades, strict=True), strict=True)
        ],
    )


def reading_help(method: str, *, tried: bool = True) -> str:
    """Return a note on how to read highlights.

    Args:
        method: that proposed the phrases.
        tried: whether they were deleted to see how far a score falls.
    """
    strength = "how far the score falls when it is deleted" if tried else "its strength"
    return (
        "A phrase is underlined in the colour of the label it spoke for, and followed "
        "by the label's letters. The darker the tint, the closer its strength is to "
        "the label's strongest phrase. Several lines below a phrase mean several "
        "labels. "
        f"Each label has its score, each phrase {strength}. Phrases were proposed by "
        f"{method}."
    )


def colophon() -> str:
    """Return a line that says which program made the page."""
    return f"Written by textcapsules {__version__}."


def render(template: str, **values: Any) -> str:
    """Return a page made from one of the package's templates."""
    return valid_unicode(environment().get_template(template).render(**values))


@cache
def environment() -> "Environment":
    """Return the templates' environment: it escapes all; unknown names are errors."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("textcapsules.draw"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["base64"] = lambda image: b64encode(image).decode()
    made.filters["strength"] = format_strength
    made.globals.update(light=LIGHT, dark=DARK, tints=TINTS, heat=HEAT)
    return made
