"""`textcapsules predict`."""

import functools
import json as jsons
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from textcapsules.base.errors import ConfigError, DataError, warn
from textcapsules.cli.options import Delimiter, Encoding
from textcapsules.cli.show import print_json, say, work_bar

__all__ = ["existing_file", "is_utf8", "looks_like_file", "predict", "stdin_lines"]

PLAIN = (".txt", ".text", ".md")  # files that are one text
TABLES = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet")
OTHERS = (".json", ".xls", ".xlsx", ".ods")  # tables in a form that is not read


def predict(
    model: Annotated[Path, typer.Argument(help="A model folder.")],
    texts: Annotated[
        list[str] | None, typer.Argument(help="Texts, or - for one a line on stdin.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option(help="A CSV, TSV, JSONL or Parquet file of texts.")
    ] = None,
    text_column: Annotated[str, typer.Option(help="Its text column.")] = "text",
    delimiter: Delimiter = None,
    encoding: Encoding = None,
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
    excel_safe: Annotated[
        bool,
        typer.Option(
            "--excel-safe",
            help="In a CSV or TSV --out, put a single quote before texts that a "
            "spreadsheet would run as formulas.",
        ),
    ] = False,
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
    from textcapsules.base.checks import check_decision
    from textcapsules.inference.bulk import Decision, predict_lines
    from textcapsules.model.classifier import TextClassifier

    check_input(file, texts, out)
    check_file_options(file, out, delimiter, encoding, excel_safe)
    check_engine(engine, ray_address, file)
    check_decision(multi_label, threshold)
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
                delimiter=delimiter,
                encoding=encoding,
                excel_safe=excel_safe,
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
    if line := summary.cut.line(classifier.config):
        warn(line)
    if json:
        cut = summary.cut.to_dict(classifier.config.text.max_tokens)
        print_json({**values, **summary._asdict(), "cut": cut})


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
    if texts and all(map(looks_like_file, texts)):
        refuse_file(texts[0])


def refuse_file(name: str) -> None:
    """Say how a file is given, or that there is none."""
    if existing_file(name) is None:
        raise DataError(missing_file(name))
    if Path(name).suffix.lower() in PLAIN:
        how = f"Send it to stdin, one text per line: - < {name}"
    else:
        how = f"Pass it as --file {name}"
    raise ConfigError(f"texts must be texts; got the name of a file, {name!r}. {how}.")


def missing_file(name: str) -> str:
    """Return what is said where a file is named that is not there."""
    return (
        f"{name} must be a file; got no such file. Check the name, or send it to stdin "
        "with - if it is a text."
    )


def looks_like_file(text: str) -> bool:
    """Tell the name of a table or a text file from a text.

    >>> [looks_like_file(text) for text in ("new.csv", "I opened new.csv", "etc.")]
    [True, False, False]
    """
    name = text.lower().removesuffix(".gz")
    is_path = not any(map(str.isspace, text)) or text.startswith(("/", "./", "../"))
    # A name has something before its ending.
    return is_path and any(
        name.endswith(ending) and len(name) > len(ending)
        for ending in (*TABLES, *PLAIN, *OTHERS)
    )


def existing_file(argument: str) -> Path | None:
    """Return the file an argument names, if it does."""
    with suppress(OSError, ValueError):  # too long for a name, or no name at all
        if Path(argument).is_file():
            return Path(argument)
    return None


def check_file_options(
    file: Path | None,
    out: Path | None,
    delimiter: str | None,
    encoding: str | None,
    excel_safe: bool,
) -> None:
    """Refuse options of files where there is none."""
    for name, value in (("delimiter", delimiter), ("encoding", encoding)):
        if value is not None and file is None:
            raise ConfigError(
                f"{name} must go with --file; got {value!r} without one. Leave it out."
            )
    if excel_safe and out is None:
        raise ConfigError(
            "excel-safe must go with --out of a CSV or TSV file; got no --out. Name it."
        )


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
        from textcapsules.inference.bulk import predict_table

        return predict_table
    from textcapsules.inference.bulk_ray import predict_table_ray

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
