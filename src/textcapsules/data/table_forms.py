"""The forms a table of texts may have, each read as record batches.

Cells of CSV and TSV are read as they stand ("007" stays "007"), quoted with `"` where
they hold the separator or a line break. The first rows of a JSONL file settle its
columns and their types. Where Arrow does not say which row it could not read, the file
is read again, slowly, to find it.
"""

import csv
import gzip
import io
import json
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import pyarrow as pa
import pyarrow.csv as arrow_csv
from pyarrow import parquet

from textcapsules.errors import DataError

__all__ = ["DELIMITERS", "Numbered", "compression", "form_of", "numbered_batches"]

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


def compression(path: Path) -> str | None:
    """Return Arrow's name for the compression a name's ending tells."""
    return "gzip" if path.suffix.lower() == ".gz" else None


def numbered_batches(
    path: Path, wanted: Sequence[str], batch_rows: int
) -> Iterator[Numbered]:
    """Yield the file's rows, at most `batch_rows` together; faults are `DataError`s."""
    form = form_of(path)
    read = {"parquet": _read_parquet, "jsonl": _read_jsonl}.get(form, _read_csv)
    if not path.is_file():
        raise DataError(f"{path} must be a file; got no such file. Check the name.")
    n_rows = 0
    try:
        for batch, numbers in read(path, batch_rows):
            _require(path, batch.schema.names, wanted)
            for start in range(0, batch.num_rows, batch_rows):
                part = batch.slice(start, batch_rows)
                first = n_rows + start + 1
                counted = range(first, first + part.num_rows)
                lines = numbers[start : start + batch_rows]
                yield Numbered(part, lines or counted)
            n_rows += batch.num_rows
    except _UNREADABLE as error:
        reason = _diagnose(path, form) or getattr(error, "strerror", None) or error
        raise DataError(
            f"{path} must be a readable {form.upper()} file in UTF-8; "
            f"got {str(reason).splitlines()[0]}."
        ) from error


def _require(path: Path, names: Sequence[str], wanted: Sequence[str]) -> None:
    for name in wanted:
        if names.count(name) != 1:
            got = f"{names.count(name)} of them" if name in names else ", ".join(names)
            raise DataError(
                f"{path} must have one column {name!r}; got {got}. "
                "Name the columns of texts and labels."
            )


def _read_parquet(path: Path, batch_rows: int) -> Iterator[Numbered]:
    with parquet.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=batch_rows):
            yield Numbered(batch, ())


def _read_csv(path: Path, batch_rows: int) -> Iterator[Numbered]:
    form, last = form_of(path), ""
    options: dict[str, Any] = {
        "read_options": arrow_csv.ReadOptions(block_size=_BLOCK),
        "parse_options": arrow_csv.ParseOptions(
            delimiter=DELIMITERS[form], newlines_in_values=True
        ),
    }
    with _open_arrow(path) as file, arrow_csv.open_csv(file, **options) as reader:
        as_text = dict.fromkeys(reader.schema.names, pa.string())
    options["convert_options"] = arrow_csv.ConvertOptions(column_types=as_text)
    with _open_arrow(path) as file, arrow_csv.open_csv(file, **options) as reader:
        for batch in reader:
            if batch.num_rows:
                last = batch.columns[-1][-1].as_py()
            yield Numbered(batch, ())
    # Arrow takes the end of the file for the end of a quoted cell.
    if "\n" in last and _UNCLOSED in (_diagnose(path, form) or ""):
        raise pa.ArrowInvalid(_UNCLOSED)


def _read_jsonl(path: Path, batch_rows: int) -> Iterator[Numbered]:
    schema, rows, numbers = None, [], []
    with _open_text(path) as lines:
        for number, line in enumerate(lines, start=1):
            if not line.isspace():
                rows.append(_json_row(path, line, number))
                numbers.append(number)
            if len(rows) == batch_rows:
                yield Numbered(batch := _json_batch(rows, schema), numbers)
                schema, rows, numbers = batch.schema, [], []
    if rows:
        yield Numbered(_json_batch(rows, schema), numbers)


def _json_row(path: Path, line: str, number: int) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError as error:
        row = error
    if not isinstance(row, dict):
        got = row if isinstance(row, ValueError) else repr(line.strip()[:40])
        raise DataError(
            f"{path} must hold one JSON object a line; got {got} in line {number}."
        )
    return row


def _json_batch(rows: list[dict[str, Any]], schema: pa.Schema | None) -> pa.RecordBatch:
    """Make a batch; the first one settles the columns and their types for all."""
    types = dict.fromkeys(key for row in rows for key in row)
    if schema is not None:
        types = dict(zip(schema.names, schema.types, strict=True))
    columns = [
        _json_column([r.get(k) for r in rows], kind) for k, kind in types.items()
    ]
    return pa.record_batch(columns, names=list(types))


def _json_column(values: list[Any], kind: pa.DataType | None) -> pa.Array:
    """Make a column of any values: a list among them makes all lists, else text."""
    is_list = kind is not None and pa.types.is_list(kind)
    if is_list or any(isinstance(value, list) for value in values):
        values = [v if v is None or isinstance(v, list) else [v] for v in values]
    try:
        column = pa.array(values, kind)
    except (pa.ArrowException, OverflowError, UnicodeEncodeError):
        column = pa.array([_json_text(value) for value in values], kind)
    # A later batch may have values where this one has none: call them text.
    if column.type in (pa.null(), pa.list_(pa.null())):
        is_flat = column.type == pa.null()
        column = column.cast(pa.string() if is_flat else pa.list_(pa.string()))
    return column


def _json_text(value: Any) -> Any:
    if isinstance(value, list):
        return [_json_text(item) for item in value]
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text.encode(errors="replace").decode()  # lone surrogates become "?"


def _open_arrow(path: Path) -> pa.NativeFile:
    return pa.input_stream(str(path), compression=compression(path))


def _open_bytes(path: Path) -> IO[bytes]:
    return gzip.open(path) if compression(path) else path.open("rb")  # type: ignore


def _open_text(path: Path) -> IO[str]:
    return io.TextIOWrapper(_open_bytes(path), encoding="utf-8-sig", newline="")


def _diagnose(path: Path, form: str) -> str | None:
    """Find the line that Arrow could not read, which it does not tell."""
    if form == "parquet":
        return None
    number = 0
    try:
        with _open_bytes(path) as lines:
            for line in lines:
                number += 1
                line.decode()
        with _open_text(path) as lines:
            return _csv_fault(lines, DELIMITERS[form]) if form != "jsonl" else None
    except UnicodeDecodeError as error:
        return f"a byte {error.object[error.start]:#04x} in line {number}"
    except (OSError, EOFError, zlib.error):
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
