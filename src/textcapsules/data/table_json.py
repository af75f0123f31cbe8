"""Tables of one JSON object per line, read as record batches.

A first pass over the file finds every column and a type that fits all its values, so
that a column which only a late row has is not lost; a second one makes the batches. A
list among the values of a column makes all of them lists; values of several kinds
become text.
"""

import json
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from textcapsules.data.table_text import open_text
from textcapsules.errors import DataError
from textcapsules.notices import warn

__all__ = ["json_batches", "to_json"]

DEEPEST = 60  # levels of lists and objects; Arrow's own format reads 64
CHUNK = 4096  # rows looked at together in the first pass
SURROGATE = re.compile("[\ud800-\udfff]")
SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")  # half of a pair, or a whole pair


class Row(NamedTuple):
    """One object of the file."""

    number: int  # of its line, from 1
    cells: dict[str, Any]
    mended: int  # cells in which a lone surrogate was replaced


def json_batches(
    path: Path, encoding: str, batch_rows: int
) -> Iterator[tuple[pa.RecordBatch, list[int]]]:
    """Yield the rows of a file, with the numbers of their lines."""
    types = find_types(path, encoding)
    rows = json_rows(path, encoding)
    while part := list(islice(rows, batch_rows)):
        columns = [
            make_column([row.cells.get(name) for row in part], kind)
            for name, kind in types.items()
        ]
        batch = pa.record_batch(columns, names=list(types))
        yield batch, [row.number for row in part]


def to_json(value: Any) -> str | None:
    """Return a value as JSON text; None stays None."""
    if value is None:
        return None
    return json.dumps(value, ensure_ascii=False, default=str)


def find_types(path: Path, encoding: str) -> dict[str, pa.DataType]:
    """Return the columns of all rows, each with a type that fits all its values."""
    types: dict[str, pa.DataType] = {}
    n_mended = first_mended = 0
    rows = json_rows(path, encoding)
    while part := list(islice(rows, CHUNK)):
        for name in dict.fromkeys(name for row in part for name in row.cells):
            kind = make_column([row.cells.get(name) for row in part], None).type
            types[name] = merge_types(types.get(name, kind), kind)
        n_mended += sum(row.mended for row in part)
        first_mended = first_mended or next((r.number for r in part if r.mended), 0)
    if n_mended:
        cells = "1 cell has" if n_mended == 1 else f"{n_mended:,} cells have"
        warn(
            f"{path}: {cells} half of a surrogate pair, which is no character, first "
            f"in line {first_mended}; U+FFFD stands in its place."
        )
    # What is null in every row is called text.
    empty = {pa.null(): pa.string(), pa.list_(pa.null()): pa.list_(pa.string())}
    return {name: empty.get(kind, kind) for name, kind in types.items()}


def merge_types(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Return a type for the values of both; a list of them if either has lists."""
    if pa.types.is_list(one) or pa.types.is_list(other):
        items = [t.value_type if pa.types.is_list(t) else t for t in (one, other)]
        return pa.list_(merge_items(*items))
    return merge_items(one, other)


def merge_items(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Return a type for values that are taken as they are, or else as JSON text."""
    try:
        schemas = [pa.schema([("", kind)]) for kind in (one, other)]
        merged = pa.unify_schemas(schemas, promote_options="permissive")
    except pa.ArrowTypeError:
        return pa.string()
    return merged.types[0]


def json_rows(path: Path, encoding: str) -> Iterator[Row]:
    """Yield the object of each line that is not blank."""
    with open_text(path, encoding) as lines:
        for number, line in enumerate(lines, start=1):
            if not line.isspace():
                yield json_row(path, line, number)


def json_row(path: Path, line: str, number: int) -> Row:
    """Read one line."""
    too_deep = f"more than {DEEPEST} lists or objects inside one another"
    try:
        cells = json.loads(line)
        got = repr(line.strip()[:40])
    except ValueError as error:
        cells, got = None, str(error)
    except RecursionError:
        cells, got = None, too_deep
    if isinstance(cells, dict) and is_deep(line, cells):
        cells, got = None, too_deep
    if not isinstance(cells, dict):
        raise DataError(
            f"{path} must hold one JSON object a line; got {got} in line {number}."
        )
    if not SURROGATE_ESCAPE.search(line):
        return Row(number, cells, 0)
    if name := next(filter(SURROGATE.search, cells), None):
        raise DataError(
            f"{path} must have columns with names of whole characters; got {name!r} in "
            f"line {number}. Rename it."
        )
    broken = [name for name in cells if SURROGATE.search(to_json(cells[name]) or "")]
    return Row(number, cells | {n: mend(cells[n]) for n in broken}, len(broken))


def is_deep(line: str, value: Any) -> bool:
    """Tell whether lists and objects are nested deeper than `DEEPEST`."""
    if line.count("[") + line.count("{") <= DEEPEST:
        return False
    level = [value]
    for _ in range(DEEPEST + 1):
        level = [
            item
            for outer in level
            if isinstance(outer, dict | list)
            for item in (outer.values() if isinstance(outer, dict) else outer)
        ]
    return bool(level)


def mend(value: Any) -> Any:
    """Return a value with U+FFFD for each lone surrogate, at any depth."""
    if isinstance(value, str):
        return SURROGATE.sub("\ufffd", value)
    if isinstance(value, list):
        return [mend(item) for item in value]
    if isinstance(value, dict):
        return {mend(key): mend(item) for key, item in value.items()}
    return value


def make_column(values: list[Any], kind: pa.DataType | None) -> pa.Array:
    """Make a column of a type, or of the type that suits the values."""
    is_list = kind is not None and pa.types.is_list(kind)
    if is_list or any(isinstance(value, list) for value in values):
        values = [v if v is None or isinstance(v, list) else [v] for v in values]
    try:
        return pa.array(values, kind)
    except (pa.ArrowException, OverflowError):
        texts = [
            [json_text(item) for item in value]
            if isinstance(value, list)
            else json_text(value)
            for value in values
        ]
        return pa.array(texts, kind)


def json_text(value: Any) -> str | None:
    """Return a text as it is, and any other value as JSON."""
    return value if isinstance(value, str) else to_json(value)
