"""A user's table of texts and labels, read and written.

For training, a text that is null or blank is an error, since nothing can be learnt from
it; its row is left out if the caller says so (`skip_empty`). For prediction it is the
empty text. Files are read in record batches, so one for prediction may be larger than
memory. Row numbers in messages count rows of data from 1; for JSONL they are line
numbers.
"""

import math
import re
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.csv as arrow_csv
from pyarrow import parquet

from textcapsules.base.errors import DataError, WriteError, warn
from textcapsules.base.files import atomic_path, check_new_file
from textcapsules.data.example import Example
from textcapsules.data.table_formats import (
    DELIMITERS,
    TextFormat,
    compression,
    form_of,
    numbered_batches,
    to_json,
)

__all__ = [
    "TableWriter",
    "open_writer",
    "read_numbered",
    "read_table",
    "stream_table",
]

# What a spreadsheet takes for the start of a formula.
FORMULA = re.compile(r"[=+\-@\t\r\n]")
NUMBER = re.compile(r"[+-]?[0-9]+([.,][0-9]+)*([eE][+-]?[0-9]+)?")


def read_table(path: Path | str, **options: Any) -> list[Example]:
    """Read texts and labels, for training or evaluation (see `read_numbered`)."""
    return [example for _, example in read_numbered(path, **options)]


def read_numbered(
    path: Path | str,
    *,
    text_column: str = "text",
    label_column: str = "label",
    separator: str | None = None,
    delimiter: str | None = None,
    encoding: str | None = None,
    skip_empty: bool = False,
) -> list[tuple[int, Example]]:
    """Read texts and labels, each with the number of its row.

    A label cell is a text, a number (which becomes a text) or a list of them. With a
    `separator`, a text cell is cut into several labels. Spaces around labels are
    removed. Rows with an empty text or label are refused, or left out with
    `skip_empty`.
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
                example = Example(text, tuple(dict.fromkeys(labels)))
                examples.append((number, example))
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
    number: int  # its row
    cell: Any


def _refuse_empty(
    path: Path,
    text_column: str,
    label_column: str,
    textless: Sequence[_Empty],
    unlabelled: Sequence[_Empty],
) -> None:
    """Refuse empty cells; name the first one of each kind, and how many there are."""

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

    The text column has strings, "" for a missing text.
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
        """Write what the form still needs, such as Parquet's footer."""
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
    """Open a table for writing; the file appears when the block ends without an error.

    An existing file is kept unless `overwrite` is set. With `excel_safe`, only for CSV
    and TSV, a text that a spreadsheet would take for a formula gets a single quote in
    front.
    """
    path = Path(path)
    form = form_of(path)
    if excel_safe and form not in DELIMITERS:
        raise WriteError(
            f"{path} must be a CSV or TSV file for --excel-safe; got {form.upper()}, "
            "whose texts no spreadsheet takes for formulas. Leave it out."
        )
    check_new_file(path, overwrite)
    with (
        atomic_path(path) as temporary,
        pa.output_stream(str(temporary), compression=compression(path)) as sink,
        closing(TableWriter(sink, schema, form, delimiter, excel_safe)) as writer,
    ):
        yield writer


def _without_formulas(column: pa.Array) -> pa.Array:
    """Put a single quote before texts that begin like a formula, but not numbers."""
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
        return str(int(value))  # beside an empty cell, whole numbers are read as floats
    return str(value).strip()
