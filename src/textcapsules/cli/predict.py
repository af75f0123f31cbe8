"""`textcapsules predict`."""

import functools
import json as jsons
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from textcapsules.base.collector import collector_paused
from textcapsules.base.errors import ConfigError, warn
from textcapsules.cli.inputs import check_input, read_lines
from textcapsules.cli.options import (
    Delimiter,
    Device,
    Encoding,
    Json,
    Model,
    MultiLabel,
    Overwrite,
    Refuse,
    TextColumn,
    Texts,
    Threshold,
)
from textcapsules.cli.show import print_json, say, work_bar

__all__ = ["predict"]


def predict(
    model: Model,
    texts: Texts = None,
    data: Annotated[
        Path | None,
        typer.Option(help="CSV, TSV, JSONL or Parquet file with one text per row."),
    ] = None,
    text_column: TextColumn = None,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="File to write: the columns of --data and the predicted labels."
        ),
    ] = None,
    overwrite: Overwrite = False,
    scores: Annotated[
        bool,
        typer.Option(
            "--scores",
            help="Give the score of every label too, and how many of the words that "
            "were read are known.",
        ),
    ] = False,
    multi_label: MultiLabel = None,
    threshold: Threshold = None,
    refuse: Refuse = True,
    separator: Annotated[
        str,
        typer.Option(help="Text between several labels in a cell of CSV or TSV."),
    ] = "; ",
    excel_safe: Annotated[
        bool,
        typer.Option(
            "--excel-safe",
            help="In a CSV or TSV --out, put a single quote before texts that a "
            "spreadsheet would run as formulas.",
        ),
    ] = False,
    device: Device = "auto",
    engine: Annotated[
        str,
        typer.Option(
            help="plain: one process; ray: several processes or machines, for --data."
        ),
    ] = "plain",
    ray_address: Annotated[
        str | None,
        typer.Option(help="Address of a Ray cluster; by default this machine."),
    ] = None,
    json: Json = False,
) -> None:
    """Predict the labels of texts: of arguments, of a file, or of lines from a pipe.

    A text that is empty, of which no word is known, or that lies outside the topics of
    the training texts gets no label.
    A file is read and written in pieces, so it may be larger than memory.

      textcapsules predict runs/model "charged twice and cannot log in"

      textcapsules predict runs/model --data new.csv --out labelled.csv

      cat lines.txt | textcapsules predict runs/model - > labelled.jsonl

      textcapsules predict runs/model --data a.csv --out b.csv --engine ray
    """
    with collector_paused():
        from textcapsules.base.checks import check_decision
        from textcapsules.inference.bulk import Decision, predict_lines
        from textcapsules.model.classifier import TextClassifier

    file_options = {
        "text_column": text_column,
        "delimiter": delimiter,
        "encoding": encoding,
    }
    check_input(texts, data, **file_options)
    check_out(data, out, excel_safe)
    predict_file = table_engine(engine, ray_address, data, device)
    check_decision(multi_label, threshold)
    classifier = TextClassifier.load(model, device)
    counts = json and data is None  # columns of a file do not depend on --json
    decision = Decision(multi_label, threshold, scores, separator, counts, refuse)
    values: dict[str, Any] = {"model": str(model)}
    if data is not None:
        file_options["text_column"] = text_column or classifier.config.data.text_column
        with work_bar("texts", quiet=json) as on_rows:
            summary = predict_file(
                classifier,
                data,
                out or write_row,
                decision=decision,
                overwrite=overwrite,
                on_rows=on_rows,
                excel_safe=excel_safe,
                **file_options,
            )
        if out is not None:
            values["out"] = str(out)
            say(
                f"{out}: {summary.texts:,} texts, {summary.without_label:,} without a "
                f"label, {summary.unreadable:,} of them with no known word; "
                f"{summary.outside:,} outside the training topics."
            )
    elif texts == ["-"]:
        summary = predict_lines(classifier, read_lines(), write_row, decision=decision)
    else:
        assert texts
        rows: list[dict[str, Any]] = []
        summary = predict_lines(classifier, texts, rows.append, decision=decision)
        for row in [] if json else rows:
            write_row(row)
        values["predictions"] = rows
    if line := summary.cut.line(classifier.config):
        warn(line)
    if json:
        cut = summary.cut.to_dict(classifier.config.text.max_tokens)
        print_json({**values, **summary._asdict(), "cut": cut})


def check_out(data: Path | None, out: Path | None, excel_safe: bool) -> None:
    """Refuse an output file without a file to read, and an option without either."""
    if out is not None and data is None:
        raise ConfigError(
            f"out must go with --data; got {str(out)!r} with texts, whose labels are "
            "printed. Leave it out, or send the output there with >."
        )
    if excel_safe and out is None:
        raise ConfigError(
            "excel-safe must go with --out of a CSV or TSV file; got no --out. Name it."
        )


def table_engine(
    engine: str, address: str | None, data: Path | None, device: str
) -> Callable[..., Any]:
    """Return the function that predicts whole files; refuse one that cannot work."""
    if engine not in ("plain", "ray"):
        raise ConfigError(f"engine must be plain or ray; got {engine!r}.")
    if engine == "ray" and data is None:
        raise ConfigError("engine must be plain for texts; got 'ray' without --data.")
    if address is not None and engine != "ray":
        raise ConfigError(
            f"ray-address must go with --engine ray; got {address!r} alone."
        )
    if engine == "plain":
        from textcapsules.inference.bulk import predict_table

        return predict_table
    from textcapsules.inference.bulk_ray import predict_table_ray

    return functools.partial(predict_table_ray, address=address, device=device)


def write_row(row: dict[str, Any]) -> None:
    """Print one prediction as a line of JSON."""
    sys.stdout.write(jsons.dumps(row, ensure_ascii=False, default=str) + "\n")
