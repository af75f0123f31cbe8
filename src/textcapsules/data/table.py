"""The forms a table of texts may have, each read as record batches.

Cells of CSV and TSV are read as they stand ("007" stays "007"), quoted with `"` where
they hold the delimiter or a line break. Where Arrow does not say which row it could not
read, the file is read again, slowly, to find it.

A user's own table of texts: CSV, TSV, JSONL or Parquet, in and out.

The name's ending tells the form; CSV, TSV and JSONL may be gzipped (`.csv.gz`). Files
are read in record batches, so for prediction one may be larger than memory. Row numbers
in messages count rows of data from 1; for JSONL they are line numbers.

For training, a text that is null or blank is an error, since it teaches nothing, or its
row is left out where the caller says so; for prediction it is the empty text.
"""

import csv
import math
import re
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.csv as arrow_csv
from pyarrow import parquet

from textcapsules.base.errors import ConfigError, DataError, WriteError, warn
from textcapsules.base.files import atomic_path
from textcapsules.data.example import Example
from textcapsules.data.table_formats import (
    FOUND_OUT,
    TextFormat,
    as_utf8,
    check_first_line,
    check_format,
    compression,
    find_delimiter,
    find_encoding,
    json_batches,
    open_text,
    to_json,
    undecodable,
)

__all__ = [
    "DELIMITERS",
    "Numbered",
    "TableWriter",
    "form_of",
    "numbered_batches",
    "open_writer",
    "read_table",
    "settle_format",
    "stream_table",
]

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


# How a spreadsheet tells a formula; line breaks and tabs before it are passed over.
FORMULA = re.compile(r"[=+\-@\t\r\n]")
NUMBER = re.compile(r"[+-]?[0-9]+([.,][0-9]+)*([eE][+-]?[0-9]+)?")


def read_table(
    path: Path | str,
    *,
    text_column: str = "text",
    label_column: str = "label",
    separator: str | None = None,
    delimiter: str | None = None,
    encoding: str | None = None,
    skip_empty: bool = False,
) -> list[Example]:
    """Read texts and labels, for training or evaluation.

    A label cell is a text, a number (which becomes its text) or a list of them; with a
    `separator`, a text cell is cut into several labels. Labels are stripped. Rows with
    an empty text or label are refused, or left out with `skip_empty`.
    """
    path = Path(path)
    wanted, given = (text_column, label_column), TextFormat(delimiter, encoding)
    examples = []
    textless, unlabelled = [], []
    for batch, numbers in numbered_batches(path, wanted, 8192, given):
        texts = _as_text(path, batch, text_column).to_pylist()
        cells = batch.column(label_column).to_pylist()
        for number, text, cell in zip(numbers, texts, cells, strict=True):
            labels = _labels(cell, separator)
            if not text or text.isspace():
                textless.append(_Empty(number, text))
            elif not labels or not all(labels):
                unlabelled.append(_Empty(number, cell))
            else:
                examples.append(Example(text, tuple(dict.fromkeys(labels))))
    if not skip_empty:
        _refuse_empty(path, text_column, label_column, textless, unlabelled)
    elif textless or unlabelled:
        first = min(each.number for each in (*textless, *unlabelled))
        warn(
            f"{path}: {len(textless) + len(unlabelled):,} rows are left out, "
            f"{len(textless):,} without a text and {len(unlabelled):,} without a "
            f"label; the first is row {first}."
        )
    if not examples:
        got = "empty ones alone" if textless or unlabelled else "none"
        raise DataError(f"{path} must have rows; got {got}. Name a file with texts.")
    return examples


class _Empty(NamedTuple):
    number: int  # of the row
    cell: Any


def _refuse_empty(
    path: Path,
    text_column: str,
    label_column: str,
    textless: Sequence[_Empty],
    unlabelled: Sequence[_Empty],
) -> None:
    """Say which cell is empty, the first of each kind, and how many there are."""

    def more(rows: Sequence[_Empty]) -> str:
        return f" and {len(rows) - 1:,} more" if len(rows) > 1 else ""

    faults = []
    if textless:
        faults.append(
            f"a text in each row; got an empty cell of {text_column!r} in row "
            f"{textless[0].number}{more(textless)}"
        )
    if unlabelled:
        faults.append(
            f"a label in each row; got {unlabelled[0].cell!r} in {label_column!r}, row "
            f"{unlabelled[0].number}{more(unlabelled)}"
        )
    if faults:
        raise DataError(
            f"{path} must have {'; and '.join(faults)}. Fill in what is missing, drop "
            "the rows, or leave them out with --skip-empty."
        )


def stream_table(
    path: Path | str,
    *,
    text_column: str = "text",
    columns: Sequence[str] | None = None,
    batch_rows: int = 4096,
    delimiter: str | None = None,
    encoding: str | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the table in batches, for prediction, with all columns or those named.

    The text column comes as strings, "" where there was none.
    """
    path = Path(path)
    wanted = tuple(dict.fromkeys((text_column, *(columns or ()))))
    n_rows, given = 0, TextFormat(delimiter, encoding)
    for batch, _ in numbered_batches(path, wanted, batch_rows, given):
        place = batch.schema.get_field_index(text_column)
        texts = _as_text(path, batch, text_column).fill_null("")
        batch = batch.set_column(place, text_column, texts)
        n_rows += batch.num_rows
        yield batch if columns is None else batch.select(list(wanted))
    if not n_rows:
        raise DataError(f"{path} must have rows; got none. Name a file with texts.")


class TableWriter:
    """Appends record batches to an open table; made by `open_writer`."""

    def __init__(
        self,
        sink: pa.NativeFile,
        schema: pa.Schema,
        form: str,
        delimiter: str | None = None,
        excel_safe: bool = False,
    ) -> None:
        self._sink = sink
        self._form = form
        self._excel_safe = excel_safe
        if form == "parquet":
            try:
                self._writer = parquet.ParquetWriter(sink, schema)
            except pa.ArrowNotImplementedError as error:  # as objects without a field
                reason = str(error).split(". ")[0]
                raise DataError(
                    "the table must have columns that Parquet can hold; got one it "
                    f"cannot: {reason}. Write JSONL in its place."
                ) from error
        elif form != "jsonl":
            options = arrow_csv.WriteOptions(delimiter=delimiter or DELIMITERS[form])
            flat = self._flat(pa.RecordBatch.from_pylist([], schema)).schema
            self._writer = arrow_csv.CSVWriter(sink, flat, write_options=options)

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows. CSV and TSV take lists and structs as JSON text."""
        if self._form == "jsonl":
            lines = (f"{to_json(row)}\n" for row in batch.to_pylist())
            self._sink.write("".join(lines).encode())
        elif self._form == "parquet":
            self._writer.write_batch(batch)
        else:
            self._writer.write(self._flat(batch))

    def close(self) -> None:
        """Write what is still to be written, as Parquet's footer."""
        if self._form != "jsonl":
            self._writer.close()

    def _flat(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = [
            pa.array(map(to_json, column.to_pylist()), pa.string())
            if pa.types.is_nested(column.type)
            else column
            for column in batch.columns
        ]
        names = batch.schema.names
        if self._excel_safe:
            columns = [_without_formulas(column) for column in columns]
            names = _without_formulas(pa.array(names, pa.string())).to_pylist()
        return pa.record_batch(columns, names=names)


@contextmanager
def open_writer(
    path: Path | str,
    schema: pa.Schema,
    *,
    overwrite: bool = False,
    delimiter: str | None = None,
    excel_safe: bool = False,
) -> Iterator[TableWriter]:
    """Open a table for writing; it gets its name when the block has ended well.

    An existing file is left alone unless `overwrite` is set. With `excel_safe`, which
    CSV and TSV alone have, a text that a spreadsheet would take for a formula gets a
    single quote in front.
    """
    path = Path(path)
    form = form_of(path)
    if excel_safe and form not in DELIMITERS:
        raise WriteError(
            f"{path} must be a CSV or TSV file for --excel-safe; got {form.upper()}, "
            "whose texts no spreadsheet takes for formulas. Leave it out."
        )
    if path.exists() and not overwrite:
        raise WriteError(
            f"{path} must not exist yet; got an existing file. "
            "Name another, or pass --overwrite."
        )
    with (
        atomic_path(path) as temporary,
        pa.output_stream(str(temporary), compression=compression(path)) as sink,
        closing(TableWriter(sink, schema, form, delimiter, excel_safe)) as writer,
    ):
        yield writer


def _without_formulas(column: pa.Array) -> pa.Array:
    """Put a single quote before texts that begin as a formula; numbers are none."""
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return column
    texts = [
        f"'{text}"
        if text and FORMULA.match(text) and not NUMBER.fullmatch(text)
        else text
        for text in column.to_pylist()
    ]
    return pa.array(texts, column.type)


def _as_text(path: Path, batch: pa.RecordBatch, name: str) -> pa.Array:
    column = batch.column(name)
    if not (pa.types.is_nested(column.type) or pa.types.is_binary(column.type)):
        return column.cast(pa.string())
    raise DataError(
        f"{path} must have texts in column {name!r}; got {column.type}. "
        "Name the column that holds them."
    )


def _labels(cell: Any, separator: str | None) -> list[str]:
    if isinstance(cell, str) and separator:
        return [part.strip() for part in cell.split(separator) if part.strip()]
    return [_label(item) for item in (cell if isinstance(cell, list) else [cell])]


def _label(value: Any) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))  # whole numbers beside an empty cell are read as floats
    return str(value).strip()
