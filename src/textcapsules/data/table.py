"""A user's own table of texts: CSV, TSV, JSONL or Parquet, in and out.

The name's ending tells the form; CSV, TSV and JSONL may be gzipped (`.csv.gz`). Files
are read in record batches, so for prediction one may be larger than memory. Row numbers
in messages count rows of data from 1; for JSONL they are line numbers.

For training, a text that is null or blank is an error, since it teaches nothing; for
prediction it is the empty text.
"""

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as arrow_csv
from pyarrow import parquet

from textcapsules.data.example import Example
from textcapsules.data.table_forms import (
    DELIMITERS,
    compression,
    form_of,
    numbered_batches,
)
from textcapsules.errors import DataError, WriteError
from textcapsules.files import atomic_path

__all__ = ["TableWriter", "open_writer", "read_table", "stream_table"]


def read_table(
    path: Path | str,
    *,
    text_column: str = "text",
    label_column: str = "label",
    separator: str | None = None,
) -> list[Example]:
    """Read texts and labels, for training or evaluation.

    A label cell is a text, a number (which becomes its text) or a list of them; with a
    `separator`, a text cell is cut into several labels. Labels are stripped.
    """
    path = Path(path)
    examples = []
    for batch, numbers in numbered_batches(path, (text_column, label_column), 8192):
        texts = _as_text(path, batch, text_column).to_pylist()
        cells = batch.column(label_column).to_pylist()
        for number, text, cell in zip(numbers, texts, cells, strict=True):
            if not text or text.isspace():
                raise DataError(
                    f"{path} must have a text in each row; got an empty cell of "
                    f"{text_column!r} in row {number}. Fill it in or drop the row."
                )
            labels = _labels(cell, separator)
            if not labels or not all(labels):
                raise DataError(
                    f"{path} must have a label in each row; got {cell!r} in "
                    f"{label_column!r}, row {number}. Fill it in or drop the row."
                )
            examples.append(Example(text, tuple(dict.fromkeys(labels))))
    if not examples:
        raise DataError(f"{path} must have rows; got none. Name a file with texts.")
    return examples


def stream_table(
    path: Path | str,
    *,
    text_column: str = "text",
    columns: Sequence[str] | None = None,
    batch_rows: int = 4096,
) -> Iterator[pa.RecordBatch]:
    """Yield the table in batches, for prediction, with all columns or those named.

    The text column comes as strings, "" where there was none.
    """
    path = Path(path)
    wanted = tuple(dict.fromkeys((text_column, *(columns or ()))))
    n_rows = 0
    for batch, _ in numbered_batches(path, wanted, batch_rows):
        place = batch.schema.get_field_index(text_column)
        texts = _as_text(path, batch, text_column).fill_null("")
        batch = batch.set_column(place, text_column, texts)
        n_rows += batch.num_rows
        yield batch if columns is None else batch.select(list(wanted))
    if not n_rows:
        raise DataError(f"{path} must have rows; got none. Name a file with texts.")


class TableWriter:
    """Appends record batches to an open table; made by `open_writer`."""

    def __init__(self, sink: pa.NativeFile, schema: pa.Schema, form: str) -> None:
        self._sink = sink
        self._form = form
        if form == "parquet":
            self._writer = parquet.ParquetWriter(sink, schema)
        elif form != "jsonl":
            options = arrow_csv.WriteOptions(delimiter=DELIMITERS[form])
            flat = _flat(pa.RecordBatch.from_pylist([], schema)).schema
            self._writer = arrow_csv.CSVWriter(sink, flat, write_options=options)

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows. CSV and TSV take lists and structs as JSON text."""
        if self._form == "jsonl":
            lines = (f"{_to_json(row)}\n" for row in batch.to_pylist())
            self._sink.write("".join(lines).encode())
        elif self._form == "parquet":
            self._writer.write_batch(batch)
        else:
            self._writer.write(_flat(batch))

    def close(self) -> None:
        """Write what is still to be written, as Parquet's footer."""
        if self._form != "jsonl":
            self._writer.close()


@contextmanager
def open_writer(
    path: Path | str, schema: pa.Schema, *, overwrite: bool = False
) -> Iterator[TableWriter]:
    """Open a table for writing; it gets its name when the block has ended well.

    An existing file is left alone unless `overwrite` is set.
    """
    path = Path(path)
    form = form_of(path)
    if path.exists() and not overwrite:
        raise WriteError(
            f"{path} must not exist yet; got an existing file. "
            "Name another, or pass --overwrite."
        )
    with (
        atomic_path(path) as temporary,
        pa.output_stream(str(temporary), compression=compression(path)) as sink,
        closing(TableWriter(sink, schema, form)) as writer,
    ):
        yield writer


def _to_json(value: Any) -> str | None:
    if value is None:
        return None
    return json.dumps(value, ensure_ascii=False, default=str)


def _flat(batch: pa.RecordBatch) -> pa.RecordBatch:
    columns = [
        pa.array(map(_to_json, column.to_pylist()), pa.string())
        if pa.types.is_nested(column.type)
        else column
        for column in batch.columns
    ]
    return pa.record_batch(columns, names=batch.schema.names)


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
