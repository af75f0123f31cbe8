"""How the bytes of a table become text, and its lines cells: encoding and delimiter.

A file says neither. Unless a user names them, the encoding is UTF-8, or what a byte
order mark says, and the delimiter of a CSV file is found in its first lines. A comma
that gives the wanted columns always wins, whatever else stands in the cells.

Tables of one JSON object per line, read as record batches.

A first pass over the file finds every column and a type that fits all its values, so
that a column which only a late row has is not lost; a second one makes the batches. A
list among the values of a column makes all of them lists; values of several kinds
become text.
"""

import codecs
import csv
import gzip
import io
import json
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple

import pyarrow as pa

from textcapsules.base.errors import ConfigError, DataError, warn

__all__ = [
    "FOUND_OUT",
    "TextFormat",
    "as_utf8",
    "check_first_line",
    "check_format",
    "compression",
    "find_delimiter",
    "find_encoding",
    "json_batches",
    "open_text",
    "read_text",
    "to_json",
    "undecodable",
]

UTF_8 = "utf-8"
DELIMITERS = (",", ";", "\t", "|")  # the usual one first
# UTF-32's mark begins with UTF-16's, so it stands before it.
MARKS = {
    codecs.BOM_UTF8: UTF_8,
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
SAMPLE = 1 << 16  # characters in which the delimiter is looked for


class TextFormat(NamedTuple):
    """How a table of text is written; None means that it is found out."""

    delimiter: str | None = None
    encoding: str | None = None


FOUND_OUT = TextFormat()


def check_format(given: TextFormat) -> TextFormat:
    r"""Return the format with `\t` as a tab; refuse what no file can have.

    >>> check_format(TextFormat(r"\t", "latin-1"))
    TextFormat(delimiter='\t', encoding='iso8859-1')
    """
    delimiter, encoding = given
    if delimiter == r"\t":
        delimiter = "\t"
    if delimiter is not None and (
        len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n\0'
    ):
        raise ConfigError(
            "delimiter must be one character, as ; or | (a tab is \\t), and no "
            f"quotation mark; got {delimiter!r}."
        )
    if encoding is not None:
        try:
            # Some codecs of Python's turn bytes into bytes: they open no text.
            io.TextIOWrapper(io.BytesIO(), encoding=encoding)
            encoding = codecs.lookup(encoding).name
        except (LookupError, ValueError) as error:
            raise ConfigError(
                "encoding must be one that Python knows, as utf-8, latin-1, cp1252 or "
                f"utf-16; got {encoding!r}."
            ) from error
    return TextFormat(delimiter, encoding)


def compression(path: Path) -> str | None:
    """Return Arrow's name for the compression a name's ending tells."""
    return "gzip" if path.suffix.lower() == ".gz" else None


def open_bytes(path: Path) -> IO[bytes]:
    """Open a file, uncompressed, as bytes."""
    return gzip.open(path) if compression(path) else path.open("rb")  # type: ignore


def open_text(path: Path, encoding: str, errors: str = "strict") -> IO[str]:
    """Open a file as text, without a byte order mark, line ends as they are."""
    name = "utf-8-sig" if encoding == UTF_8 else encoding
    return io.TextIOWrapper(open_bytes(path), encoding=name, errors=errors, newline="")


@contextmanager
def as_utf8(path: Path, encoding: str) -> Iterator[Path]:
    """Yield a file in UTF-8 with the same content, a temporary one where it must be.

    Arrow could recode by itself, but calls Python for it from a thread that reads
    ahead: a program that ends on an error meanwhile is aborted by the system.
    """
    if encoding == UTF_8:
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="textcapsules-") as folder:
        recoded = Path(folder) / "table"
        with (
            open_text(path, encoding) as file,
            recoded.open("w", encoding=UTF_8, newline="") as out,
        ):
            shutil.copyfileobj(file, out, 1 << 20)
        yield recoded


def find_encoding(path: Path, named: str | None) -> str:
    """Return the named encoding, else that of the byte order mark, else UTF-8."""
    if named is not None:
        return named
    with open_bytes(path) as file:
        start = file.read(1024)
    if start.startswith(b"PK\x03\x04"):
        raise DataError(
            f"{path} must be a file of text; got a ZIP archive, as an Excel workbook "
            "is. Save it as CSV."
        )
    for mark, encoding in MARKS.items():
        if start.startswith(mark):
            return encoding
    # Latin letters in UTF-16 are a letter and a zero, or a zero and a letter.
    for encoding, zeros in (("utf-16-le", start[1::2]), ("utf-16-be", start[::2])):
        if zeros.count(0) > len(start) // 4:
            raise DataError(
                f"{path} must be in UTF-8, or begin with a byte order mark; got what "
                f"looks like UTF-16 without one. Pass --encoding {encoding}."
            )
    return UTF_8


def check_first_line(path: Path, encoding: str) -> None:
    """Refuse the line that tells Excel the delimiter: it is no row of the table."""
    with open_text(path, encoding, "replace") as file:
        line = file.readline(20).strip().strip('"')
    if found := re.fullmatch(r"sep=(.)", line, re.IGNORECASE):
        raise DataError(
            f"{path} must begin with the names of its columns; got {line!r}, a line "
            f"for Excel. Remove it, and pass --delimiter {found[1]!r}."
        )


def read_text(path: Path, given: TextFormat) -> str:
    """Return a file that is one text."""
    delimiter, named = check_format(given)
    if delimiter is not None:
        raise ConfigError(
            f"delimiter must go with a table; got {delimiter!r} for the text {path}. "
            "Leave it out."
        )
    encoding = named or UTF_8
    try:
        encoding = find_encoding(path, named)
        return path.read_text("utf-8-sig" if encoding == UTF_8 else encoding)
    except OSError as error:
        reason = error.strerror
    except UnicodeDecodeError as error:
        reason = undecodable(path, encoding) or error
    raise DataError(f"{path} must be a readable {encoding.upper()} text; got {reason}.")


def undecodable(path: Path, encoding: str) -> str | None:
    """Say which byte of which line is not in the encoding, if there is one."""
    n_lines = 0
    decoder = codecs.getincrementaldecoder(encoding)()
    with open_bytes(path) as lines:
        try:
            for line in lines:
                n_lines += decoder.decode(line).count("\n")
            decoder.decode(b"", final=True)
        except UnicodeDecodeError as error:
            byte = error.object[error.start]
            return f"a byte {byte:#04x} in line {n_lines + 1}{advice(encoding, byte)}"
    return None


def advice(encoding: str, byte: int) -> str:
    """Return what to do about a byte that does not fit."""
    if encoding != UTF_8:
        return ". Pass another --encoding"
    # Latin-1 has no letters there; Windows has quotation marks and dashes.
    other = "cp1252" if 0x80 <= byte < 0xA0 else "latin-1"
    return (
        f". If it was written in another encoding, name it, as --encoding {other}; "
        "else mend that line"
    )


def find_delimiter(path: Path, encoding: str, wanted: Sequence[str]) -> str:
    """Return what separates the cells of a CSV file, told by its first lines.

    It is the first of `DELIMITERS` that finds the wanted columns in the header, or else
    that gives all rows as many cells as the header, more than one; or else a comma.
    """
    with open_text(path, encoding, errors="replace") as file:
        sample = file.read(SAMPLE)
    is_cut = len(sample) == SAMPLE
    tables = {each: sample_rows(sample, each, is_cut) for each in DELIMITERS}
    for delimiter, rows in tables.items():
        if rows and all(name in rows[0] for name in wanted):
            return delimiter
    for delimiter, rows in tables.items():
        if len({len(row) for row in rows}) == 1 and len(rows[0]) > 1:
            return delimiter
    return DELIMITERS[0]


def sample_rows(sample: str, delimiter: str, is_cut: bool) -> list[list[str]]:
    """Return the sample's rows, without the last one where it may be cut off."""
    # `io` keeps line ends as they are: they may stand inside quotation marks.
    rows = list(
        filter(None, csv.reader(io.StringIO(sample, newline=""), delimiter=delimiter))
    )
    return rows[:-1] if is_cut and len(rows) > 1 else rows


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
