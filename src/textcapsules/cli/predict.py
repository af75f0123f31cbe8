"""`textcapsules predict`."""

import functools
import json as jsons
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from textcapsules.cli.evaluate import check_threshold
from textcapsules.cli.show import print_json, say, work_bar
from textcapsules.errors import ConfigError, DataError

__all__ = ["predict"]


def predict(
    model: Annotated[Path, typer.Argument(help="A model folder.")],
    texts: Annotated[
        list[str] | None, typer.Argument(help="Texts, or - for one a line on stdin.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option(help="A CSV, TSV, JSONL or Parquet file of texts.")
    ] = None,
    text_column: Annotated[str, typer.Option(help="Its text column.")] = "text",
    out: Annotated[
        Path | None, typer.Option(help="File to write: the input's columns and more.")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace --out if it exists.")
    ] = False,
    scores: Annotated[
        bool,
        typer.Option(
            "--scores",
            help="Give every class's score, and how many of the words read are known.",
        ),
    ] = False,
    multi_label: Annotated[
        bool | None,
        typer.Option(
            "--multi-label/--single-label",
            help="All labels past their thresholds, or the highest alone; by default "
            "what the model was trained for.",
            show_default=False,
        ),
    ] = None,
    threshold: Annotated[
        float | None, typer.Option(help="For all labels, in place of the calibrated.")
    ] = None,
    separator: Annotated[str, typer.Option(help="Between labels in CSV.")] = "; ",
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    engine: Annotated[
        str, typer.Option(help="plain, or ray for several processes or machines.")
    ] = "plain",
    ray_address: Annotated[
        str | None, typer.Option(help="A Ray cluster's; by default this machine.")
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="End with one JSON object.")
    ] = False,
) -> None:
    """Predict the labels of texts: a text, a file, or a line each from a pipe.

    A text that is empty, or of which no word is known, gets no label.
    A file is read and written in pieces, so it may be larger than memory.

      textcapsules predict runs/model "charged twice and cannot log in"

      textcapsules predict runs/model --file new.csv --out labelled.csv

      cat lines.txt | textcapsules predict runs/model - > labelled.jsonl

      textcapsules predict runs/model --file a.csv --out b.csv --engine ray
    """
    from textcapsules.bulk import Decision, predict_lines
    from textcapsules.classifier import TextClassifier

    check_input(file, texts, out)
    check_engine(engine, ray_address, file)
    check_threshold(threshold)
    if threshold is not None and multi_label is False:
        raise ConfigError(
            f"threshold must go with all labels past it; got {threshold} with "
            "--single-label. Leave out one of the two."
        )
    classifier = TextClassifier.load(model, device)
    counts = json and file is None  # columns of a file do not depend on --json
    decision = Decision(multi_label, threshold, scores, separator, counts)
    values: dict[str, Any] = {"model": str(model)}
    if file is not None:
        with work_bar("texts", quiet=json) as on_rows:
            summary = table_engine(engine, ray_address, device)(
                classifier,
                file,
                out or write_row,
                text_column=text_column,
                decision=decision,
                overwrite=overwrite,
                on_rows=on_rows,
            )
        if out is not None:
            values["out"] = str(out)
            say(
                f"{out}: {summary.texts:,} texts, {summary.without_label:,} without a "
                f"label, {summary.unreadable:,} of them with no known word."
            )
    elif texts == ["-"]:
        summary = predict_lines(classifier, stdin_lines(), write_row, decision=decision)
    else:
        assert texts
        rows: list[dict[str, Any]] = []
        summary = predict_lines(classifier, texts, rows.append, decision=decision)
        for row in [] if json else rows:
            write_row(row)
        values["predictions"] = rows
    if json:
        print_json({**values, **summary._asdict()})


def check_input(file: Path | None, texts: list[str] | None, out: Path | None) -> None:
    """Refuse no input, two of them, and an output that goes with neither."""
    if (file is None) == (not texts):
        raise ConfigError(
            "input must be texts, - or --file; got "
            + ("both." if file else "none. Give a text in quotes.")
        )
    if out is not None and file is None:
        raise ConfigError(
            f"out must go with --file; got {str(out)!r} with texts, whose labels are "
            "printed. Leave it out, or send the output there with >."
        )
    for place, text in enumerate(texts or (), start=1):
        if not is_utf8(text):
            raise DataError(f"text must be UTF-8; got {text!r} as text {place}.")


def check_engine(engine: str, address: str | None, file: Path | None) -> None:
    """Refuse an engine that is none, or that has nothing to do."""
    if engine not in ("plain", "ray"):
        raise ConfigError(f"engine must be plain or ray; got {engine!r}.")
    if engine == "ray" and file is None:
        raise ConfigError("engine must be plain for texts; got 'ray' without --file.")
    if address is not None and engine != "ray":
        raise ConfigError(
            f"ray-address must go with --engine ray; got {address!r} alone."
        )


def table_engine(engine: str, address: str | None, device: str) -> Callable[..., Any]:
    """Return what predicts whole files."""
    if engine == "plain":
        from textcapsules.bulk import predict_table

        return predict_table
    from textcapsules.bulk_ray import predict_table_ray

    return functools.partial(predict_table_ray, address=address, device=device)


def is_utf8(text: str) -> bool:
    """Tell whether an argument came as UTF-8: Python keeps other bytes as marks."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def write_row(row: dict[str, Any]) -> None:
    """Print one prediction as a line of JSON."""
    sys.stdout.write(jsons.dumps(row, ensure_ascii=False, default=str) + "\n")


def stdin_lines() -> Any:
    """Yield the lines of stdin, which must be UTF-8 whatever the locale."""
    for number, line in enumerate(sys.stdin.buffer, start=1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            byte = line[error.start]
            raise DataError(
                f"stdin must be UTF-8; got byte {byte:#04x} in line {number}."
            ) from error
