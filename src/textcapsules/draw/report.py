"""A report as one self-contained page: figures in, HTML out.

First come the results: tables, the confusion matrix, the curves of training. Then the
reasons: tag clouds, highlighted texts, routing and faithfulness.
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
LARGEST_MATRIX = 30  # labels; with more, the list of mix-ups has to do
LONGEST_TEXT = 1500  # characters of an example


def headline(evaluation: Evaluation, n_labels: int) -> list[Figure]:
    """Return the numbers at the head of the page."""
    single, several = evaluation.single_label, evaluation.multi_label
    figures = {"texts": f"{evaluation.texts:,}", "labels": f"{n_labels}"}
    if single is not None:
        figures["accuracy"] = percent(single["accuracy"])
        figures["macro F1"] = percent(single["macro_f1"])
    else:
        figures["exact match"] = percent(several["exact_match"])
        figures["micro F1"] = percent(several["micro_f1"])
    return [Figure(*item) for item in figures.items()]


def result_tables(report: Report) -> list[ReportTable]:
    """Return the averages, if several labels are possible, and each label's figures."""
    evaluation = report.evaluation
    classes = [
        (
            row["label"],
            *(percent(row[key]) for key in ("precision", "recall", "f1")),
            f"{row['texts']:,}",
        )
        for row in evaluation.per_class
    ]
    header = ("label", "precision", "recall", "F1", "texts")
    by_label = ReportTable("Label by label, in percent", header, classes)
    task = report.classifier.labels.task
    if task == "single-label" and evaluation.single_label is not None:
        return [by_label]
    on = report.classifier.record.get("calibration", {}).get("on", "nothing")
    averages = [
        (name, *(percent(figures[key]) for key in METRICS.values()))
        for name, figures in (
            ("calibrated", evaluation.multi_label),
            ("0.5, as published", evaluation.multi_label_at_half),
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


def confusion_cells(report: Report) -> Cells | None:
    """Return the confusion matrix, shaded by the share of each true label."""
    labels, counts = report.classifier.labels.names, report.confusion
    if counts is None or len(labels) > LARGEST_MATRIX:
        return None
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    return shade_cells(labels, labels, counts, shades=shares)


def mix_up_table(mix_ups: Sequence[MixUp], top: int = 10) -> ReportTable | None:
    """Return the most frequent mix-ups, None if there are none."""
    rows = [(each.missed, each.instead, f"{each.texts:,}") for each in mix_ups[:top]]
    if not rows:
        return None
    title = "Missed, with another label predicted instead"
    note = f"The {len(rows)} most frequent of {len(mix_ups):,} such pairs."
    return ReportTable(title, ("missed", "predicted instead", "texts"), rows, note)


def training_table(record: Mapping[str, Any]) -> ReportTable:
    """Return one row per epoch."""
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
    thresholds = classifier.labels.thresholds
    limits = dict.fromkeys(f"{t:.3f}" for t in (min(thresholds), max(thresholds)))
    rows = [
        ("texts judged", report.source),
        ("model", classifier.config.model.architecture),
        ("made for", f"{classifier.labels.task} texts"),
        ("thresholds", " to ".join(limits)),
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
    """How faithful the methods of explaining are."""

    verdict: str
    table: ReportTable
    curves: list[Picture]


@dataclass(frozen=True, slots=True)
class Reasons:
    """The parts of the page that explain; those that are None or empty are left out."""

    clouds: list[LabelCloud]
    clouds_note: str
    reading: str
    best: list[Highlight]
    worst: list[Highlight]
    specimen: Specimen | None
    convergence: Picture | None
    trust: Trust | None


def give_reasons(explained: Explained) -> Reasons:
    """Return the parts of the page that explain."""
    corpus = explained.corpus
    sharpening, faithfulness = explained.convergence, explained.faithfulness
    return Reasons(
        clouds=label_clouds(corpus),
        clouds_note=(
            "The larger a phrase is, the stronger it spoke for the label in all texts "
            f"together (method: {corpus.method}). {lost_mass(corpus)}"
        ),
        reading=reading_help(corpus.method),
        best=[highlight(each, longest=LONGEST_TEXT) for each in explained.best],
        worst=[highlight(each, longest=LONGEST_TEXT) for each in explained.worst],
        specimen=show_specimen(explained),
        convergence=None if sharpening is None else show_convergence(sharpening),
        trust=None if faithfulness is None else show_trust(faithfulness),
    )


def lost_mass(corpus: CorpusExplanation) -> str:
    """Say how much of the capsules' mass reached no label; "" without capsules."""
    if corpus.leak is None:
        return ""
    return (
        f"{percent(corpus.orphan_share)} percent of what capsules gave went to the "
        f"orphan, {percent(corpus.leak)} percent to nobody."
    )


def label_clouds(corpus: CorpusExplanation) -> list[LabelCloud]:
    """Return every label's phrases and words, the orphan's last."""
    clouds = [label_cloud(label, place) for place, label in enumerate(corpus.labels)]
    return clouds if corpus.orphan is None else [*clouds, label_cloud(corpus.orphan)]


def label_cloud(label: LabelPhrases, place: int | None = None) -> LabelCloud:
    """Return one label's phrases and words, and their cloud if it can be drawn."""
    phrases, words = texts_for(label.phrases), texts_for(label.words)
    picture = None
    if phrases and can_draw_clouds():
        alt = f"Tag cloud of {label.label}: {', '.join(phrases[:10])}."
        picture = Picture(draw_cloud(label.phrases, place=place), alt)
    style = None if place is None else label_style(place)
    return LabelCloud(label.label, style, picture, phrases[:6], words[:10])


def texts_for(totals: Sequence[PhraseTotal]) -> list[str]:
    """Return the phrases or words that spoke for a label, not against it."""
    return [each.text for each in totals if each.strength > 0]


def show_specimen(explained: Explained) -> Specimen | None:
    """Show the best text in full, if any of its phrases spoke for a predicted label."""
    if explained.connections is None:
        return None
    top = explained.best[0]
    phrases, labels, strengths = phrase_matrix(top)
    if not phrases:
        return None
    return Specimen(
        highlight(top, longest=LONGEST_TEXT),
        shade_cells(phrases, labels, strengths),
        connection_histograms(explained.connections, top.predicted, labels),
    )


def show_convergence(convergence: Convergence) -> Picture:
    """Draw how couplings sharpen, and say it in words."""
    strongest, trained = convergence.strongest, convergence.trained
    words = (
        f"A capsule gives {percent(strongest[0])} percent of its mass to its strongest "
        f"parent after one iteration of routing, and {percent(strongest[trained - 1])} "
        f"percent after the {trained} that the model was trained with; "
        f"{convergence.texts:,} texts."
    )
    return Picture(draw_convergence(strongest, convergence.entropy), words, words)


def show_trust(faithfulness: Faithfulness) -> Trust:
    """Show the areas over the curves, and the curves."""
    rows = [
        (
            curves.method,
            f"{curves.comprehensiveness:.3f} ± {curves.comprehensiveness_spread:.3f}",
            f"{curves.sufficiency:.3f} ± {curves.sufficiency_spread:.3f}",
        )
        for curves in faithfulness.methods
    ]
    note = (
        f"{faithfulness.cases:,} predicted labels of {faithfulness.texts:,} texts; "
        "mean and standard deviation. Comprehensiveness: how much of the label's "
        "length is lost when the strongest tokens are deleted; high is good. "
        "Sufficiency: how much is lost when only they are kept; low is good."
    )
    header = ("method", "comprehensiveness", "sufficiency")
    table = ReportTable("Faithfulness", header, rows, note)
    curves = [trust_curve(faithfulness, "deleted"), trust_curve(faithfulness, "kept")]
    return Trust(faithfulness.verdict, table, curves)


def trust_curve(
    faithfulness: Faithfulness, side: Literal["deleted", "kept"]
) -> Picture:
    """Draw one of the two curves of every method."""
    change = "are deleted" if side == "deleted" else "alone are kept"
    alt = (
        f"What is left of a label's length when the strongest tokens {change}; the "
        "table has the areas over these curves."
    )
    return Picture(draw_faithfulness(faithfulness, side), alt)


@dataclass(frozen=True, slots=True)
class ReportPage:
    """What the template shows; parts that are None or empty are left out."""

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
