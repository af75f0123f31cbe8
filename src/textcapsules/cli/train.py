"""`textcapsules train` and `textcapsules evaluate`."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from textcapsules.cli.options import config_flags, resolve_config
from textcapsules.cli.show import (
    err,
    percent,
    print_json,
    print_table,
    say,
    training_bar,
)
from textcapsules.config import DataConfig, RunConfig
from textcapsules.errors import ConfigError, DataError, WriteError

__all__ = ["evaluate", "train"]

Json = Annotated[bool, typer.Option("--json", help="End with one JSON object.")]


@config_flags("data", "text", "model", "loss", "train")
def train(
    flags: dict[str, dict[str, Any]],
    out: Annotated[
        Path | None, typer.Option(help="Folder of the model (runs/model).")
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help="paper, released, sabour or best (the default).")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="A TOML or JSON file of options.")
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Go on with the interrupted run in this folder.")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a run in --out.")
    ] = False,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Write TensorBoard logs.")
    ] = False,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Print the options as TOML and stop.")
    ] = False,
    json: Json = False,
) -> None:
    """Train a capsule network and write its model folder.

    [bold]Your own file[/], one label a row, all labels wanted of new texts:

      textcapsules train --data t.csv --label-column topic --task multi-label

    [bold]A benchmark corpus[/] with word vectors, as the paper has it:

      textcapsules train --data mr --vectors w2v.bin --preset paper

    [bold]Go on[/] after an interruption:

      textcapsules train --resume runs/model
    """
    if resume is not None:
        if flags or preset or config or out or overwrite or tensorboard or print_config:
            raise ConfigError(
                "resume must stand alone, since a run keeps its options; got others "
                "beside it. Leave them out, or train anew with --out."
            )
        folder = resume
        with goes_on(folder):
            classifier = _resume(folder, json)
    else:
        run = resolve_config(preset, config, flags)
        if print_config:
            print_json(run.to_dict()) if json else say(run.to_toml())
            return
        from textcapsules.training import run as runs

        folder = out or Path("runs/model")
        with goes_on(folder), training_bar(run.train.epochs, quiet=json) as watch:
            classifier = runs.train(
                run, folder, overwrite=overwrite, tensorboard=tensorboard, **watch
            )
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


@contextmanager
def goes_on(folder: Path) -> Iterator[None]:
    """Say after Ctrl-C how to go on, if there is anything to go on with."""
    try:
        yield
    except KeyboardInterrupt as error:
        if (folder / "config.json").exists():
            err.print(
                f"textcapsules: interrupted. Go on with --resume {folder}.",
                markup=False,
                soft_wrap=True,
            )
        raise typer.Exit(130) from error


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
    from textcapsules.classifier import TextClassifier
    from textcapsules.data.load import load_split
    from textcapsules.evaluate import evaluate as judge
    from textcapsules.files import write_json
    from textcapsules.metrics import plot_confusion

    check_threshold(threshold)
    if out is not None:
        check_out(out, overwrite)
    classifier = TextClassifier.load(model, device)
    data = evaluated_data(classifier.config, flags.get("data", {}), split)
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


def evaluated_data(config: RunConfig, given: dict[str, Any], split: str) -> DataConfig:
    """Return the texts to judge on: the model's own, or others in the same form."""
    from textcapsules.data.load import is_file

    if "source" in given:  # the model's dev and test files are not this source's
        return config.replace(data={"dev": None, "test": None, **given}).data
    data = config.replace(data=given).data
    if split == "test" and data.test is None and is_file(data.source):
        raise DataError(
            f"the model must have a test set to be judged on; got none beside "
            f"{data.source}, on which it was trained. Name a file with --data, or "
            "take --split dev."
        )
    return data


def check_threshold(threshold: float | None) -> None:
    """Refuse a threshold that no score, or every score, passes."""
    if threshold is not None and not 0 <= threshold <= 1:
        raise ConfigError(f"threshold must be from 0 to 1; got {threshold}.")


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
