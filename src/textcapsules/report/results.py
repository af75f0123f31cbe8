"""The report's results: tables, the confusion matrix, the curves of training."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from textcapsules.evaluate import Evaluation
from textcapsules.explain.pictures import draw_dev_scores, draw_loss
from textcapsules.explain.render import Cells, Figure, Picture, shade_cells
from textcapsules.model.builder import ngram_sizes
from textcapsules.model.capsnet import CapsuleNetwork
from textcapsules.report.findings import MixUp, Report, ReportTable

__all__ = [
    "METRICS",
    "about_table",
    "confusion_cells",
    "headline",
    "mix_up_table",
    "percent",
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


def percent(value: float | None) -> str:
    """Return a share as a percentage with one decimal."""
    return "-" if value is None else f"{100 * value:.1f}"
