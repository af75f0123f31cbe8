"""`textcapsules evaluate`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from textcapsules.base.errors import WriteError, warn
from textcapsules.cli.options import (
    Device,
    Json,
    Model,
    Overwrite,
    Refuse,
    Split,
    Threshold,
    config_flags,
)
from textcapsules.cli.show import percent, print_json, print_table, say

__all__ = ["evaluate"]

COLUMNS = {
    "exact match": "exact_match",
    "micro P": "micro_precision",
    "micro R": "micro_recall",
    "micro F1": "micro_f1",
    "macro F1": "macro_f1",
    "samples F1": "samples_f1",
}


@config_flags("data", from_model=True)
def evaluate(
    model: Model,
    flags: dict[str, dict[str, Any]],
    split: Split = "test",
    threshold: Threshold = None,
    refuse: Refuse = True,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder to write evaluation.json and confusion.png to."),
    ] = None,
    overwrite: Overwrite = False,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Measure how good a model is on labelled texts.

    By default these are the test texts of the corpus that it was trained on. With
    --data, they are all rows of a file, in the columns that the model was trained with:

      textcapsules evaluate runs/model

      textcapsules evaluate runs/model --data more.csv --out evaluation
    """
    from textcapsules.base.checks import check_threshold
    from textcapsules.base.files import check_new_file, write_json
    from textcapsules.data.load import load_split
    from textcapsules.draw.pictures import plot_confusion
    from textcapsules.inference.evaluate import evaluate as evaluate_model
    from textcapsules.inference.evaluate import evaluation_data
    from textcapsules.model.classifier import TextClassifier

    check_threshold(threshold)
    if out is not None:
        if out.exists() and not out.is_dir():
            raise WriteError(f"{out} must be a folder; got a file. Name another.")
        for name in ("evaluation.json", "confusion.png"):
            check_new_file(out / name, overwrite)
    classifier = TextClassifier.load(model, device)
    data = evaluation_data(
        classifier.config, flags.get("data", {}), split, classifier.record
    )
    examples = load_split(data, split)
    result = evaluate_model(
        classifier, examples, threshold=threshold, source=data.source, refuse=refuse
    )
    values = {
        "model": str(model),
        "data": data.source,
        "split": split,
        **result.to_dict(),
        "cut": result.cut.to_dict(classifier.config.text.max_tokens),
    }
    if out is not None:
        write_json(out / "evaluation.json", values)
        if result.confusion is not None:
            names = classifier.labels.names
            plot_confusion(result.confusion, names, out / "confusion.png")
    # After the files are written, since the reader of a pipe may close it early.
    title = f"{data.source}, {split}, {result.texts:,} texts"
    print_evaluation(title, result, *threshold_rule(classifier, threshold))
    if line := result.cut.line(classifier.config):
        warn(line)
    if json:
        print_json(values)


def threshold_rule(classifier: Any, threshold: float | None) -> tuple[str, str]:
    """Return the name of the thresholds used, and what they were chosen on."""
    if threshold is not None:
        return f"{threshold:g}, as given", ""
    several = len(set(classifier.labels.thresholds)) > 1
    on = classifier.record.get("calibration", {}).get("on", "nothing")
    origin = "" if on == "nothing" else f", calibrated on {on}"
    return "calibrated per label" if several else "calibrated", origin


def print_evaluation(title: str, result: Any, rule: str, origin: str) -> None:
    """Print the figures of an evaluation and its per-class table.

    Args:
        title: which texts the model was evaluated on.
        result: the `Evaluation`.
        rule: which thresholds were used.
        origin: what they were chosen on, to follow the title.
    """
    if result.single_label is not None:
        accuracy, f1 = (
            percent(result.single_label[k]) for k in ("accuracy", "macro_f1")
        )
        say(f"{title}: accuracy {accuracy}, macro F1 {f1}")
    rows = [
        (name, *(percent(figures[key]) for key in COLUMNS.values()))
        for name, figures in (
            (rule, result.multi_label),
            ("0.5, as published", result.multi_label_at_half),
        )
    ]
    header = ("threshold", *COLUMNS)
    print_table(f"{title}: all labels past a threshold{origin}", header, rows)
    if result.refused:
        one = result.refused == 1
        were, texts = ("was", "it counts") if one else ("were", "they count")
        say(
            f"{result.refused:,} of {result.texts:,} texts {were} refused as outside "
            f"the training topics: {texts} as without a label (see --no-refuse)."
        )
    keys = ("precision", "recall", "f1")
    classes = [
        (row["label"], *(percent(row[key]) for key in keys), row["texts"])
        for row in result.per_class
    ]
    print_table("per class", ("label", "precision", "recall", "F1", "texts"), classes)
