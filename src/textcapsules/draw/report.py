"""The report's results: tables, the confusion matrix, the curves of training.

The report's reasons: clouds, highlighted texts, routing and faithfulness.

A report as one self-contained page: what was found in, HTML out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from textcapsules.base.progress import percent
from textcapsules.draw.pages import (
    Cells,
    Figure,
    Highlight,
    Picture,
    colophon,
    connection_histograms,
    highlight,
    phrase_matrix,
    reading_help,
    render,
    shade_cells,
)
from textcapsules.draw.palette import label_style
from textcapsules.draw.pictures import (
    can_draw_clouds,
    draw_cloud,
    draw_convergence,
    draw_dev_scores,
    draw_faithfulness,
    draw_loss,
)
from textcapsules.inference.evaluate import Evaluation
from textcapsules.inference.report import Explained, MixUp, Report, ReportTable
from textcapsules.model.builder import ngram_sizes
from textcapsules.model.capsnet import CapsuleNetwork
from textcapsules.reasons.explanation import (
    CorpusExplanation,
    Faithfulness,
    LabelPhrases,
    PhraseTotal,
)
from textcapsules.reasons.routing_inspection import Convergence

__all__ = [
    "METRICS",
    "LabelCloud",
    "Reasons",
    "Specimen",
    "Trust",
    "about_table",
    "confusion_cells",
    "give_reasons",
    "headline",
    "mix_up_table",
    "render_report",
    "result_tables",
    "training_curves",
    "training_table",
]

METRICS = {
    "exact match": "exact_match",
    "micro precision": "micro_precision",
    "micro recall": "micro_recall",
    "micro F1": "micro_f1",
    "macro F1": "macro_f1",
    "samples F1": "samples_f1",
}
LARGEST_MATRIX = 30  # labels; more than these are left to the list of mix-ups


def headline(found: Evaluation, n_labels: int) -> list[Figure]:
    """Return the numbers at the head of the page."""
    figures = [Figure("texts", f"{found.texts:,}"), Figure("labels", f"{n_labels}")]
    if found.single_label is not None:
        figures.append(Figure("accuracy", percent(found.single_label["accuracy"])))
        figures.append(Figure("macro F1", percent(found.single_label["macro_f1"])))
    else:
        figures.append(Figure("exact match", percent(found.multi_label["exact_match"])))
        figures.append(Figure("micro F1", percent(found.multi_label["micro_f1"])))
    return figures


def result_tables(report: Report) -> list[ReportTable]:
    """Return the averages, where several labels are at stake, and each label's own."""
    found = report.evaluation
    classes = [
        (row["label"], *map(percent, figures_of(row)), f"{row['texts']:,}")
        for row in found.per_class
    ]
    header = ("label", "precision", "recall", "F1", "texts")
    by_label = ReportTable("Label by label, in percent", header, classes)
    task = report.classifier.labels.task
    if task == "single-label" and found.single_label is not None:
        return [by_label]
    on = report.classifier.record.get("calibration", {}).get("on", "nothing")
    averages = [
        (name, *(percent(figures[key]) for key in METRICS.values()))
        for name, figures in (
            ("calibrated", found.multi_label),
            ("0.5, as published", found.multi_label_at_half),
        )
    ]
    together = ReportTable(
        "All labels past a threshold, in percent",
        ("threshold", *METRICS),
        averages,
        "Micro: over all decisions. Macro: over labels. Samples: over texts. "
        f"Thresholds were calibrated on {on}.",
    )
    return [together, by_label]


def figures_of(row: Mapping[str, Any]) -> list[float]:
    """Return the figures of one label."""
    return [row[key] for key in ("precision", "recall", "f1")]


def confusion_cells(report: Report) -> Cells | None:
    """Return the confusion matrix, shaded by the share of each true label."""
    labels, counts = report.classifier.labels.names, report.confusion
    if counts is None or len(labels) > LARGEST_MATRIX:
        return None
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    return shade_cells(labels, labels, counts, shades=shares)


def mix_up_table(found: Sequence[MixUp], top: int = 10) -> ReportTable | None:
    """Return the most frequent mix-ups, None where there are none."""
    rows = [(each.missed, each.instead, f"{each.texts:,}") for each in found[:top]]
    if not rows:
        return None
    title = "Missed, with another label predicted instead"
    note = f"The {len(rows)} most frequent of {len(found):,} such pairs."
    return ReportTable(title, ("missed", "predicted instead", "texts"), rows, note)


def training_table(record: Mapping[str, Any]) -> ReportTable:
    """Return one row an epoch."""
    on = record.get("calibration", {}).get("on", "dev documents")
    columns = {
        "dev accuracy": "dev_accuracy",
        f"exact match, {on}": "dev_exact_match",
        f"micro F1, {on}": "dev_micro_f1",
    }
    epochs = record["epochs"]
    kept = {name: key for name, key in columns.items() if key in epochs[0]}
    rows = [
        (
            r["epoch"],
            f"{r['loss']:.4f}",
            *(percent(r.get(key)) for key in kept.values()),
        )
        for r in epochs
    ]
    note = f"Epoch {record.get('best_epoch')} was kept."
    return ReportTable("Epochs", ("epoch", "loss", *kept), rows, note)


def training_curves(epochs: Sequence[Mapping[str, Any]]) -> list[Picture]:
    """Return the curves of loss and development scores."""
    first, last = epochs[0], epochs[-1]
    loss = f"from {first['loss']:.3f} to {last['loss']:.3f}"
    score = f"{percent(first['dev_score'])} to {percent(last['dev_score'])} percent"
    return [
        Picture(draw_loss(epochs), f"Training loss over the epochs, {loss}."),
        Picture(draw_dev_scores(epochs), f"Development scores, {score} at the end."),
    ]


def about_table(report: Report) -> ReportTable:
    """Return what the model and the texts are."""
    classifier, record = report.classifier, report.classifier.record
    least = sorted(classifier.labels.thresholds)
    rows = [
        ("texts judged", report.source),
        ("model", classifier.config.model.architecture),
        ("made for", f"{classifier.labels.task} texts"),
        (
            "thresholds",
            " to ".join(dict.fromkeys(f"{t:.3f}" for t in least[:: len(least) - 1])),
        ),
        ("known words", f"{classifier.tokenizer.n_words:,}"),
    ]
    if isinstance(classifier.network, CapsuleNetwork):
        sizes = ngram_sizes(classifier.config.model)
        rows.append(("n-gram sizes", ", ".join(map(str, sizes))))
    if "parameters" in record:
        rows.append(("parameters", f"{record['parameters']:,}"))
    if title := record.get("corpus", {}).get("title"):
        rows.append(("trained on", title))
    return ReportTable("About", ("what", "value"), rows)


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


def spoken(found: Sequence[PhraseTotal]) -> list[str]:
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


@dataclass(frozen=True, slots=True)
class ReportPage:
    """What the template shows; None and empty lists are left out."""

    title: str
    lead: str
    figures: Sequence[Figure]
    tables: Sequence[ReportTable]
    confusion: Cells | None
    mix_ups: ReportTable | None
    training: ReportTable | None
    curves: Sequence[Picture]
    reasons: Reasons | None
    about: ReportTable
    colophon: str


def render_report(report: Report) -> str:
    """Return the page; it needs no network and no script."""
    record = report.classifier.record
    epochs = record.get("epochs", [])
    page = ReportPage(
        title=report.title,
        lead=report.lead,
        figures=headline(report.evaluation, len(report.classifier.labels.names)),
        tables=[*report.tables, *result_tables(report)],
        confusion=confusion_cells(report),
        mix_ups=mix_up_table(report.mix_ups),
        training=training_table(record) if epochs else None,
        curves=training_curves(epochs) if epochs else [],
        reasons=None if report.explained is None else give_reasons(report.explained),
        about=about_table(report),
        colophon=colophon(),
    )
    return render("report.html.j2", page=page)
