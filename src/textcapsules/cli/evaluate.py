"""`textcapsules evaluate`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from textcapsules.base.errors import DataError, WriteError, warn
from textcapsules.cli.options import config_flags
from textcapsules.cli.show import Json, percent, print_json, print_table, say
from textcapsules.config import DataConfig, RunConfig

__all__ = ["evaluate"]

COLUMNS = {
    "exact match": "exact_match",
    "micro P": "micro_precision",
    "micro R": "micro_recall",
    "micro F1": "micro_f1",
    "macro F1": "macro_f1",
    "samples F1": "samples_f1",
}


@config_flags("data")
def evaluate(
    model: Annotated[Path, typer.Argument(help="A model folder.")],
    flags: dict[str, dict[str, Any]],
    split: Annotated[str, typer.Option(help="train, dev or test.")] = "test",
    threshold: Annotated[
        float | None, typer.Option(help="In place of the calibrated ones.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for evaluation.json and confusion.png.")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace those in --out.")
    ] = False,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    json: Json = False,
) -> None:
    """Judge a model on labelled texts; by default on its own corpus's test set.

    On that, and on a file of yours, with the figures written to a folder:

      textcapsules evaluate runs/model

      textcapsules evaluate runs/model --data more.csv --out evaluation
    """
    from textcapsules.base.checks import check_threshold
    from textcapsules.base.files import write_json
    from textcapsules.data.load import load_split
    from textcapsules.draw.pictures import plot_confusion
    from textcapsules.inference.evaluate import evaluate as judge
    from textcapsules.model.classifier import TextClassifier

    check_threshold(threshold)
    if out is not None:
        check_out(out, overwrite)
    classifier = TextClassifier.load(model, device)
    data = evaluated_data(classifier.config, flags.get("data", {}), split)
    examples = load_split(data, split)
    result = judge(classifier, examples, threshold=threshold, source=data.source)
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
    # After the files are written: whoever reads may close the pipe early.
    title = f"{data.source}, {split}, {result.texts:,} texts"
    print_evaluation(title, result, *threshold_rule(classifier, threshold))
    if line := result.cut.line(classifier.config):
        warn(line)
    if json:
        print_json(values)


def evaluated_data(config: RunConfig, given: dict[str, Any], split: str) -> DataConfig:
    """Return the texts to judge on: the model's own, or others in the same form."""
    from textcapsules.data.load import is_file

    if "source" in given:
        # The columns are the model's; how its own files were written is not.
        own = ("dev", "test", "delimiter", "encoding", "skip_empty")
        fresh = {name: getattr(DataConfig(), name) for name in own}
        data = config.replace(data={**fresh, **given}).data
        is_same = Path(data.source).resolve() == Path(config.data.source).resolve()
        if is_same and split == "test" and data.test is None and is_file(data.source):
            warn(
                f"{data.source} holds the texts the model was trained on, so the "
                "figures are too good. Leave out --data and take --split dev, or name "
                "other texts."
            )
        return data
    data = config.replace(data=given).data
    if split == "test" and data.test is None and is_file(data.source):
        raise DataError(
            f"the model must have a test set to be judged on; got none beside "
            f"{data.source}, on which it was trained. Name a file with --data, or "
            "take --split dev."
        )
    return data


def check_out(folder: Path, overwrite: bool) -> None:
    """Refuse to replace an evaluation unless told to."""
    if folder.exists() and not folder.is_dir():
        raise WriteError(f"{folder} must be a folder; got a file. Name another.")
    for name in ("evaluation.json", "confusion.png"):
        if (folder / name).exists() and not overwrite:
            raise WriteError(
                f"{folder / name} must not exist yet; got an existing file. Name "
                "another folder, or pass --overwrite."
            )


def threshold_rule(classifier: Any, threshold: float | None) -> tuple[str, str]:
    """Return the name of the thresholds used, and what they were chosen on."""
    if threshold is not None:
        return f"{threshold:g}, as given", ""
    several = len(set(classifier.labels.thresholds)) > 1
    on = classifier.record.get("calibration", {}).get("on", "nothing")
    chosen = "" if on == "nothing" else f", calibrated on {on}"
    return "calibrated per label" if several else "calibrated", chosen


def print_evaluation(title: str, result: Any, rule: str, chosen: str) -> None:
    """Print the figures of an evaluation and its per-class table.

    Args:
        title: what was judged.
        result: the `Evaluation`.
        rule: which thresholds were used.
        chosen: what they were chosen on, to follow the title.
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
    print_table(f"{title}: all labels past a threshold{chosen}", header, rows)
    keys = ("precision", "recall", "f1")
    classes = [
        (row["label"], *(percent(row[key]) for key in keys), row["texts"])
        for row in result.per_class
    ]
    print_table("per class", ("label", "precision", "recall", "F1", "texts"), classes)
