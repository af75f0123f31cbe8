"""`textcapsules train` and `textcapsules evaluate`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from textcapsules.cli.options import config_flags, resolve_config
from textcapsules.cli.show import percent, print_json, print_table, say, training_bar
from textcapsules.errors import ConfigError

__all__ = ["evaluate", "train"]

Json = Annotated[bool, typer.Option("--json", help="End with one JSON object.")]


@config_flags("data", "text", "model", "loss", "train")
def train(
    flags: dict[str, dict[str, Any]],
    out: Annotated[Path, typer.Option(help="Folder of the model.")] = Path(
        "runs/model"
    ),
    preset: Annotated[
        str | None, typer.Option(help="paper, released, sabour or best (the default).")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="A TOML or JSON file of options.")
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Go on with the interrupted run in this folder.")
    ] = None,
    overwrite: Annotated[bool, typer.Option(help="Replace a run in --out.")] = False,
    tensorboard: Annotated[bool, typer.Option(help="Write TensorBoard logs.")] = False,
    print_config: Annotated[
        bool, typer.Option(help="Print the options as TOML and stop.")
    ] = False,
    json: Json = False,
) -> None:
    """Train a capsule network and write its model folder.

    [bold]Your own file[/], one label a row, all labels wanted of new texts:

      textcapsules train --data tickets.csv --label-column topic --task multi-label

    [bold]A benchmark corpus[/] with word vectors, as the paper has it:

      textcapsules train --data mr --data-dir corpora --vectors w2v.bin --preset paper

    [bold]Go on[/] after an interruption: textcapsules train --resume runs/model
    """
    if resume is not None:
        if flags or preset or config:
            raise ConfigError(
                "resume must stand alone, since a run keeps its options; got others "
                "beside it. Leave them out, or train anew with --out."
            )
        classifier, folder = _resume(resume, json), resume
    else:
        run = resolve_config(preset, config, flags)
        if print_config:
            say(run.to_toml())
            return
        from textcapsules.training import run as runs

        with training_bar(run.train.epochs, quiet=json) as watch:
            classifier = runs.train(
                run, out, overwrite=overwrite, tensorboard=tensorboard, **watch
            )
        folder = out
    record = classifier.record
    best = record["epochs"][record["best_epoch"] - 1]
    say(
        f"{folder}: {record['texts']['train']:,} texts, {len(classifier.labels.names)} "
        f"labels; best of {len(record['epochs'])} epochs is {best['epoch']} with dev "
        f"accuracy {percent(best['dev_accuracy'])}; threshold "
        f"{classifier.labels.thresholds[0]:.3f} from {record['calibration']['on']}."
    )
    if json:
        print_json({"folder": str(folder), **record})


def _resume(folder: Path, quiet: bool) -> Any:
    from textcapsules.classifier import read_run_config
    from textcapsules.training import run as runs

    epochs = read_run_config(folder).train.epochs
    with training_bar(epochs, quiet=quiet) as watch:
        return runs.resume(folder, **watch)


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
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    json: Json = False,
) -> None:
    """Judge a model on labelled texts; by default on its own corpus's test set.

    textcapsules evaluate runs/model

    textcapsules evaluate runs/model --data more.csv --label-column topic --out eval
    """
    from textcapsules.classifier import TextClassifier
    from textcapsules.data.load import load_split
    from textcapsules.evaluate import evaluate as judge
    from textcapsules.files import write_json
    from textcapsules.metrics import plot_confusion

    classifier = TextClassifier.load(model, device)
    data = classifier.config.replace(**flags).data
    if "data" in flags and "source" in flags["data"] and "test" not in flags["data"]:
        data = classifier.config.replace(data={**flags["data"], "test": None}).data
    examples = load_split(data, split)
    result = judge(classifier, examples, threshold=threshold, source=data.source)
    print_evaluation(f"{data.source}, {split}, {result.texts:,} texts", result)
    values = {
        "model": str(model),
        "data": data.source,
        "split": split,
        **result.to_dict(),
    }
    if out is not None:
        write_json(out / "evaluation.json", values)
        if result.confusion is not None:
            names = classifier.labels.names
            plot_confusion(result.confusion, names, out / "confusion.png")
    if json:
        print_json(values)


def print_evaluation(title: str, result: Any) -> None:
    """Print the figures of an evaluation and its per-class table."""
    if result.single_label is not None:
        figures = result.single_label
        say(
            f"{title}: accuracy {percent(figures['accuracy'])}, "
            f"macro F1 {percent(figures['macro_f1'])}"
        )
    rows = [
        (name, *(percent(figures[key]) for key in keys))
        for name, figures in (
            ("calibrated", result.multi_label),
            ("0.5, as published", result.multi_label_at_half),
        )
        if (
            keys := (
                "exact_match",
                "micro_precision",
                "micro_recall",
                "micro_f1",
                "macro_f1",
                "samples_f1",
            )
        )
    ]
    header = (
        "threshold",
        "exact match",
        "micro P",
        "micro R",
        "micro F1",
        "macro F1",
        "samples F1",
    )
    print_table(f"{title}: all labels past a threshold", header, rows)
    classes = [
        (
            row["label"],
            percent(row["precision"]),
            percent(row["recall"]),
            percent(row["f1"]),
            row["texts"],
        )
        for row in result.per_class
    ]
    print_table("per class", ("label", "precision", "recall", "F1", "texts"), classes)
