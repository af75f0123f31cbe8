"""The report's reasons: clouds, highlighted texts, routing and faithfulness."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from textcapsules.explain.clouds import can_draw_clouds, draw_cloud
from textcapsules.explain.convergence import Convergence
from textcapsules.explain.highlight import Highlight, highlight
from textcapsules.explain.palette import label_style
from textcapsules.explain.pictures import draw_convergence, draw_faithfulness
from textcapsules.explain.render import (
    Cells,
    Picture,
    connection_histograms,
    phrase_matrix,
    reading_help,
    shade_cells,
)
from textcapsules.explain.types import (
    CorpusExplanation,
    Faithfulness,
    LabelPhrases,
    Spoken,
)
from textcapsules.report.findings import Explained, ReportTable
from textcapsules.report.results import percent

__all__ = ["LabelCloud", "Reasons", "Specimen", "Trust", "give_reasons"]

LONGEST_TEXT = 1500  # characters of an example


class LabelCloud(NamedTuple):
    """One label's phrases and words throughout the texts."""

    label: str
    style: tuple[int, str] | None  # None for the orphan
    picture: Picture | None
    phrases: list[str]
    words: list[str]


class Specimen(NamedTuple):
    """One text's phrases against all labels, and its strengths in order."""

    text: Highlight
    heat_map: Cells
    histograms: Picture


class Trust(NamedTuple):
    """How the methods of explaining stood the test."""

    verdict: str
    table: ReportTable
    curves: list[Picture]


@dataclass(frozen=True, slots=True)
class Reasons:
    """The parts of the page that explain; None and empty ones are left out."""

    clouds: list[LabelCloud]
    clouds_note: str
    reading: str
    best: list[Highlight]
    worst: list[Highlight]
    specimen: Specimen | None
    convergence: Picture | None
    trust: Trust | None


def give_reasons(found: Explained) -> Reasons:
    """Return the parts of the page that explain."""
    sharpening, trust = found.convergence, found.faithfulness
    return Reasons(
        clouds=label_clouds(found.corpus),
        clouds_note=(
            "The stronger a phrase spoke for the label in all the texts together, the "
            f"larger it is (method: {found.corpus.method}). {lost_mass(found.corpus)}"
        ),
        reading=reading_help(found.corpus.method),
        best=[highlight(shown, longest=LONGEST_TEXT) for shown in found.best],
        worst=[highlight(shown, longest=LONGEST_TEXT) for shown in found.worst],
        specimen=show_specimen(found),
        convergence=None if sharpening is None else show_convergence(sharpening),
        trust=None if trust is None else show_trust(trust),
    )


def lost_mass(corpus: CorpusExplanation) -> str:
    """Say what of the capsules' mass reached no label; without any there is none."""
    if corpus.leak is None:
        return ""
    return (
        f"{percent(corpus.orphan_share)} percent of what capsules gave went to the "
        f"orphan, {percent(corpus.leak)} percent to nobody."
    )


def label_clouds(corpus: CorpusExplanation) -> list[LabelCloud]:
    """Return every label's phrases and words, the orphan's last."""
    clouds = [label_cloud(own, place) for place, own in enumerate(corpus.labels)]
    return clouds if corpus.orphan is None else [*clouds, label_cloud(corpus.orphan)]


def label_cloud(own: LabelPhrases, place: int | None = None) -> LabelCloud:
    """Return one label's phrases and words, and their cloud where it can be drawn."""
    phrases, words = spoken(own.phrases), spoken(own.words)
    picture = None
    if phrases and can_draw_clouds():
        alt = f"Tag cloud of {own.label}: {', '.join(phrases[:10])}."
        picture = Picture(draw_cloud(own.phrases, place=place), alt)
    style = None if place is None else label_style(place)
    return LabelCloud(own.label, style, picture, phrases[:6], words[:10])


def spoken(found: Sequence[Spoken]) -> list[str]:
    """Return what spoke for a label rather than against it."""
    return [one.text for one in found if one.strength > 0]


def show_specimen(found: Explained) -> Specimen | None:
    """Show the best text in full, if any of its phrases spoke for a predicted label."""
    if found.connections is None:
        return None
    top = found.best[0]
    phrases, labels, strengths = phrase_matrix(top)
    if not phrases:
        return None
    return Specimen(
        highlight(top, longest=LONGEST_TEXT),
        shade_cells(phrases, labels, strengths),
        connection_histograms(found.connections, top.predicted, labels),
    )


def show_convergence(found: Convergence) -> Picture:
    """Draw how couplings sharpen, and say it in words."""
    first, last = found.strongest[0], found.strongest[found.trained - 1]
    words = (
        f"A capsule's strongest parent gets {percent(first)} percent of what it gives "
        f"after one iteration of routing and {percent(last)} percent after the "
        f"{found.trained} the model was trained with; {found.texts:,} texts."
    )
    return Picture(draw_convergence(found.strongest, found.entropy), words, words)


def show_trust(found: Faithfulness) -> Trust:
    """Show the areas over the curves, and the curves."""
    rows = [
        (
            curves.method,
            f"{curves.comprehensiveness:.3f} ± {curves.comprehensiveness_spread:.3f}",
            f"{curves.sufficiency:.3f} ± {curves.sufficiency_spread:.3f}",
        )
        for curves in found.methods
    ]
    note = (
        f"{found.cases:,} predicted labels of {found.texts:,} texts; mean and standard "
        "deviation. Comprehensiveness: how much of the label's length is lost as the "
        "strongest tokens are deleted, the higher the truer. Sufficiency: how much is "
        "lost when only they are kept, the lower the truer."
    )
    header = ("method", "comprehensiveness", "sufficiency")
    table = ReportTable("Faithfulness", header, rows, note)
    return Trust(
        found.verdict,
        table,
        [trust_curve(found, "deleted"), trust_curve(found, "kept")],
    )


def trust_curve(found: Faithfulness, side: Literal["deleted", "kept"]) -> Picture:
    """Draw one of the two curves of every method."""
    done = "are deleted" if side == "deleted" else "alone are kept"
    alt = (
        f"What is left of a label's length as the strongest tokens {done}; the table "
        "has the areas over these curves."
    )
    return Picture(draw_faithfulness(found, side), alt)
