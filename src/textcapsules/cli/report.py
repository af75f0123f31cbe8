"""`textcapsules report`."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from textcapsules.base.errors import ConfigError
from textcapsules.cli.options import (
    Device,
    Json,
    Model,
    Overwrite,
    Split,
    config_flags,
)
from textcapsules.cli.show import err, folder_name, percent, print_json, say

__all__ = ["report"]


@config_flags("data", from_model=True)
def report(
    model: Model,
    flags: dict[str, dict[str, Any]],
    split: Split = "test",
    out: Annotated[Path, typer.Option(help="HTML page to write.")] = Path(
        "report.html"
    ),
    overwrite: Overwrite = False,
    method: Annotated[
        str | None,
        typer.Option(
            help="How the strength of a phrase is measured; see "
            "`textcapsules explain --help`.",
        ),
    ] = None,
    examples: Annotated[
        int, typer.Option(help="How many of the best texts to show, and of the worst.")
    ] = 5,
    sample: Annotated[
        int | None,
        typer.Option(
            help="Number of texts to test the explanations on. "
            "[dim]\\[default: 50, or 20 on an encoder][/]"
        ),
    ] = None,
    rival: Annotated[
        bool,
        typer.Option(
            help="Train a linear model on the training texts to stand beside the "
            "model, and describe those texts."
        ),
    ] = True,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Write one page about a model: how good it is, its mistakes, and the reasons.

    By default on the test texts of the corpus that it was trained on. Where its
    training texts can be read, a simple linear model learns from them too and stands
    beside it, and the page describes them. The page needs no network:

      textcapsules report runs/model --out report.html

      textcapsules report runs/model --data more.csv --out report.html
    """
    from textcapsules.base.files import check_new_file, write_text
    from textcapsules.data.load import load_split
    from textcapsules.draw.report import render_report
    from textcapsules.inference.evaluate import evaluation_data
    from textcapsules.inference.report import make_report, training_corpus
    from textcapsules.model.classifier import TextClassifier

    check_new_file(out, overwrite)
    for name, value in (("examples", examples), ("sample", sample)):
        if value is not None and value < 1:
            raise ConfigError(f"{name} must be at least 1; got {value}.")
    classifier = TextClassifier.load(model, device)
    data = evaluation_data(
        classifier.config, flags.get("data", {}), split, classifier.record
    )
    texts = load_split(data, split)
    source = f"{Path(data.source).name}, {split}"
    corpus, missing = None, "--no-rival was given"
    if rival:
        corpus, missing = training_corpus(classifier)
    with stages(quiet=json) as on_stage:
        made = make_report(
            classifier,
            texts,
            source=source,
            title=f"{folder_name(model)} on {source}",
            method=method,
            n_examples=examples,
            n_sampled=sample,
            corpus=corpus,
            missing=missing,
            on_stage=on_stage,
        )
        on_stage("drawing")
        write_text(out, render_report(made))
    figures = made.evaluation.single_label or made.evaluation.multi_label
    key = "accuracy" if "accuracy" in figures else "exact_match"
    say(f"{source}: {key.replace('_', ' ')} {percent(figures[key])}")
    say(f"report: {out}")
    if json:
        print_json({"model": str(model), "report": str(out), **made.to_dict()})


@contextmanager
def stages(*, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Yield a function that shows what is being done, on a terminal only."""
    if quiet or not err.is_terminal:
        yield lambda stage: None
        return
    with err.status("loading") as status:
        yield lambda stage: status.update(stage)
