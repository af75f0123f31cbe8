"""`textcapsules calibrate`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from textcapsules.base.errors import ConfigError
from textcapsules.cli.options import (
    Delimiter,
    Device,
    Encoding,
    Json,
    LabelColumn,
    Model,
    Separator,
    TextColumn,
)
from textcapsules.cli.show import percent, print_json, print_table, say

__all__ = ["calibrate"]


def calibrate(
    model: Model,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Texts with all their labels: CSV, TSV, JSONL or Parquet, or the log "
            "of `textcapsules review`. A row without a label is a text that deserves "
            "none."
        ),
    ] = None,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    separator: Separator = None,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder to write the model with its new thresholds to."),
    ] = None,
    in_place: Annotated[
        bool,
        typer.Option(
            "--in-place",
            help="Give the model's own folder the new thresholds; the former ones are "
            "kept beside them.",
        ),
    ] = False,
    undo: Annotated[
        bool,
        typer.Option(
            "--undo", help="Restore the thresholds before the last --in-place."
        ),
    ] = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Take the new thresholds even if they are estimated to be worse.",
        ),
    ] = False,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Choose a model's thresholds anew on a few texts with all their labels.

    Ten texts are enough to gain by. What the thresholds are worth is estimated by
    deciding each text with thresholds fitted on the others; they are not taken if that
    is worse than now. Without --out or --in-place nothing is written.

      textcapsules calibrate runs/model --data reviewed.csv --in-place

      textcapsules calibrate runs/model --undo
    """
    check_options(data, out, in_place=in_place, undo=undo)
    from textcapsules.inference.recalibrate import (
        model_identity,
        recalibrate,
        save_copy,
        save_in_place,
        undo_thresholds,
    )

    if undo:
        labels = undo_thresholds(model)
        say(f"{model}: the former thresholds are back, {span(labels.thresholds)}.")
        if json:
            thresholds = dict(zip(labels.names, labels.thresholds, strict=True))
            print_json({"model": str(model), "thresholds": thresholds})
        return
    from textcapsules.data.reviews import read_reviews
    from textcapsules.model.classifier import TextClassifier
    from textcapsules.training.folder import check_folder

    if out is not None:
        check_folder(out, overwrite=False, may_replace=False)
    classifier = TextClassifier.load(model, device)
    columns = classifier.config.data
    assert data is not None  # `check_options` has refused it
    reviews = read_reviews(
        data,
        model=model_identity(model),
        text_column=text_column or columns.text_column,
        label_column=label_column or columns.label_column,
        separator=separator or columns.separator,
        delimiter=delimiter,
        encoding=encoding,
    )
    fitted = recalibrate(
        classifier,
        [review.text for review in reviews],
        [review.labels for review in reviews],
        is_random=[review.is_random for review in reviews],
        source=str(data),
    )
    is_taken = force or not fitted.is_worse
    written = None
    if is_taken and in_place:
        save_in_place(classifier, fitted, model)
        written = model
    elif is_taken and out is not None:
        save_copy(classifier, fitted, out)
        written = out
    print_fit(fitted)
    say(outcome(fitted, written, is_taken=is_taken, task=classifier.labels.task))
    if json:
        folder = None if written is None else str(written)
        facts = {"model": str(model), "data": str(data), "written": folder}
        print_json({**facts, "is_taken": is_taken, **fitted.to_dict()})


def check_options(
    data: Path | None, out: Path | None, *, in_place: bool, undo: bool
) -> None:
    """Refuse options that contradict each other."""
    if undo and (data is not None or out is not None or in_place):
        raise ConfigError(
            "undo must stand alone; got --data, --out or --in-place beside it. Leave "
            "them out."
        )
    if not undo and data is None:
        raise ConfigError("data must be a file of reviewed texts; got none.")
    if in_place and out is not None:
        raise ConfigError("in-place must go without --out; got both. Leave out one.")


def print_fit(fitted: Any) -> None:
    """Print both estimates, and the thresholds before and after."""
    rows = []
    for name, figures in (
        ("before", fitted.value_before),
        ("after", fitted.value_after),
    ):
        row = [name]
        for key in ("exact_match", "micro_f1"):
            low, high = getattr(figures, f"{key}_interval")
            row += [percent(getattr(figures, key)), f"{percent(low)}-{percent(high)}"]
        rows.append(row)
    print_table(
        f"{fitted.texts} reviewed texts; estimated on {fitted.value_after.texts} of "
        f"them ({fitted.on})",
        ("thresholds", "exact match", "95 %", "micro F1", "95 %"),
        rows,
    )
    pairs = zip(fitted.labels, fitted.before, fitted.after, strict=True)
    thresholds = [(name, f"{old:.3f}", f"{new:.3f}") for name, old, new in pairs]
    print_table("thresholds", ("label", "before", "after"), thresholds)
    if fitted.at_least_one:
        say(
            "Every text gets a label: where no score is past its threshold, the one "
            "that comes nearest."
        )


def outcome(fitted: Any, written: Path | None, *, is_taken: bool, task: str) -> str:
    """Say in one line what was done, and what to do next."""
    if not is_taken:
        return (
            "The new thresholds decide texts left out of the fit worse than the "
            "present ones, which are kept. Review more texts, or pass --force."
        )
    if written is None:
        return "Nothing was written: pass --in-place, or --out for a new folder."
    only = "" if task == "multi-label" else " They count with --multi-label only."
    return f"{written}: thresholds {span(fitted.after)}.{only}"


def span(thresholds: Any) -> str:
    """Return the lowest and the highest threshold.

    >>> span((0.25, 0.5)), span((0.5, 0.5))
    ('0.250 to 0.500', '0.500')
    """
    ends = [f"{each:.3f}" for each in (min(thresholds), max(thresholds))]
    return " to ".join(dict.fromkeys(ends))
