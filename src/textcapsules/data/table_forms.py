"""The forms a table of texts may have, each read as record batches.

Cells of CSV and TSV are read as they stand ("007" stays "007"), quoted with `"` where
they hold the delimiter or a line break. Where Arrow does not say which row it could not
read, the file is read again, slowly, to find it.
"""

import csv
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.csv as arrow_csv
from pyarrow import parquet

from textcapsules.data.table_json import json_batches
from textcapsules.data.table_text import (
    FOUND_OUT,
    TextFormat,
    as_utf8,
    check_first_line,
    check_format,
    compression,
    find_delimiter,
    find_encoding,
    open_text,
    undecodable,
)
from textcapsules.errors import ConfigError, DataError
from textcapsules.notices import warn

__all__ = ["DELIMITERS", "Numbered", "form_of", "numbered_batches", "settle_format"]

_FORMS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
}
DELIMITERS = {"csv": ",", "tsv": "\t"}
_BLOCK = 1 << 24  # bytes of CSV parsed at a time; the longest row that can be read
_UNCLOSED = "a quotation mark never closed"
_UNREADABLE = (OSError, EOFError, zlib.error, pa.ArrowException, UnicodeDecodeError)


class Numbered(NamedTuple):
    """Rows with the number, as a reader of the file counts, of each."""

    batch: pa.RecordBatch
    numbers: Sequence[int]


def form_of(path: Path) -> str:
    """Return csv, tsv, jsonl or parquet, by the name's ending."""
    name = path.name.lower()
    form = _FORMS.get(Path(name.removesuffix(".gz")).suffix)
    if form is None or (form == "parquet" and name.endswith(".gz")):
        raise DataError(
            f"{path} must end in {', '.join(_FORMS)} (all but the last also .gz); "
            f"got {path.suffix!r}."
        )
    return form


def settle_format(
    path: Path, wanted: Sequence[str], given: TextFormat = FOUND_OUT
) -> TextFormat:
    """Return how a file is written: as given, by its ending, or by its content.

    What does not apply to its form is None: Parquet has no encoding, JSONL no
    delimiter. A delimiter that was found and is not the usual one is told.
    """
    form = form_of(path)
    delimiter, encoding = check_format(given)
    if delimiter is not None and form not in DELIMITERS:
        raise ConfigError(
            f"delimiter must go with a CSV or TSV file; got {delimiter!r} for {path}. "
            "Leave it out."
        )
    if form == "parquet":
        if encoding is not None:
            raise ConfigError(
                f"encoding must go with a file of text; got {encoding!r} for {path}. "
                "Leave it out."
            )
        return TextFormat()
    _check_file(path)
    try:
        encoding = find_encoding(path, encoding)
        if form == "csv":
            check_first_line(path, encoding)
        if form == "csv" and delimiter is None:
            delimiter = find_delimiter(path, encoding, wanted)
            if delimiter != DELIMITERS[form]:
                shown = "a tab" if delimiter == "\t" else repr(delimiter)
                warn(
                    f"{path}: the cells are read as separated by {shown}, as its first "
                    "lines are. Pass --delimiter if that is wrong."
                )
    except _UNREADABLE as error:
        raise _unreadable(path, form, given.encoding or "utf-8", error) from error
    return TextFormat(delimiter or DELIMITERS.get(form), encoding)


def numbered_batches(
    path: Path,
    wanted: Sequence[str],
    batch_rows: int,
    given: TextFormat = FOUND_OUT,
) -> Iterator[Numbered]:
    """Yield the file's rows, at most `batch_rows` together; faults are `DataError`s."""
    form = form_of(path)
    _check_file(path)
    settled = settle_format(path, wanted, given)
    n_rows = 0
    try:
        for batch, numbers in _read(path, form, settled, batch_rows):
            _require(path, batch.schema.names, wanted)
            for start in range(0, batch.num_rows, batch_rows):
                part = batch.slice(start, batch_rows)
                first = n_rows + start + 1
                counted = range(first, first + part.num_rows)
                lines = numbers[start : start + batch_rows]
                yield Numbered(part, lines or counted)
            n_rows += batch.num_rows
    except _UNREADABLE as error:
        encoding = settled.encoding or "utf-8"
        reason = _diagnose(path, settled)
        raise _unreadable(path, form, encoding, reason or error) from error


def _check_file(path: Path) -> None:
    if not path.is_file():
        raise DataError(f"{path} must be a file; got no such file. Check the name.")


def _unreadable(
    path: Path, form: str, encoding: str, reason: str | Exception
) -> DataError:
    reason = getattr(reason, "strerror", None) or reason
    return DataError(
        f"{path} must be a readable {form.upper()} file in {encoding.upper()}; "
        f"got {str(reason).splitlines()[0]}."
    )


def _read(
    path: Path, form: str, settled: TextFormat, batch_rows: int
) -> Iterator[Numbered]:
    if form == "parquet":
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=batch_rows):
                yield Numbered(batch, ())
        return
    assert settled.encoding is not None
    if form == "jsonl":
        for batch, numbers in json_batches(path, settled.encoding, batch_rows):
            yield Numbered(batch, numbers)
    else:
        for batch in _read_csv(path, settled):
            yield Numbered(batch, ())


def _require(path: Path, names: Sequence[str], wanted: Sequence[str]) -> None:
    for name in wanted:
        if names.count(name) != 1:
            twice = name in names
            got = f"{names.count(name)} of them" if twice else ", ".join(names)
            remedy = "Rename one" if twice else "Name the columns of texts and labels"
            if not twice and len(names) == 1:
                remedy += ", or what stands between cells with --delimiter"
            raise DataError(
                f"{path} must have one column {name!r}; got {got}. {remedy}."
            )


def _read_csv(path: Path, settled: TextFormat) -> Iterator[pa.RecordBatch]:
    delimiter, encoding = settled
    assert delimiter is not None and encoding is not None
    last = ""
    options: dict[str, Any] = {
        "read_options": arrow_csv.ReadOptions(block_size=_BLOCK),
        "parse_options": arrow_csv.ParseOptions(
            delimiter=delimiter, newlines_in_values=True
        ),
    }
    with as_utf8(path, encoding) as plain:
        open_plain = partial(
            pa.input_stream, str(plain), compression=compression(plain)
        )
        with (
            open_plain() as file,
            arrow_csv.open_csv(file, **options) as reader,
        ):
            as_text = dict.fromkeys(reader.schema.names, pa.string())
        options["convert_options"] = arrow_csv.ConvertOptions(column_types=as_text)
        with (
            open_plain() as file,
            arrow_csv.open_csv(file, **options) as reader,
        ):
            for batch in reader:
                if batch.num_rows:
                    last = batch.columns[-1][-1].as_py()
                yield batch
    # Arrow takes the end of the file for the end of a quoted cell.
    if "\n" in last and _UNCLOSED in (_diagnose(path, settled) or ""):
        raise pa.ArrowInvalid(_UNCLOSED)


def _diagnose(path: Path, settled: TextFormat) -> str | None:
    """Find the line that Arrow could not read, which it does not tell."""
    delimiter, encoding = settled
    if encoding is None:
        return None
    try:
        if fault := undecodable(path, encoding):
            return fault
        if delimiter is not None:
            with open_text(path, encoding) as lines:
                return _csv_fault(lines, delimiter)
    except (OSError, EOFError, zlib.error):
        pass
    return None


def _csv_fault(lines: Iterable[str], delimiter: str) -> str | None:
    limit = csv.field_size_limit(sys.maxsize)
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    n_rows = n_columns = 0
    try:
        for row in filter(None, reader):
            n_columns = n_columns or len(row)
            if len(row) != n_columns:
                return f"{len(row)} cells instead of {n_columns} in row {n_rows}"
            n_rows += 1
    except csv.Error as error:
        unclosed = "end of data" in str(error)
        return f"{_UNCLOSED if unclosed else error} in row {n_rows}"
    finally:
        csv.field_size_limit(limit)
    return None
