"""From a CSV, TSV, JSONL or Parquet file to its rows, as Arrow record batches.

The ending of its name says which form a file has; CSV, TSV and JSONL may be gzipped
(`.csv.gz`). Unless a user names them, the encoding is UTF-8 or what a byte order mark
says, and the delimiter of a CSV file is found in its first lines: a comma if it gives
the wanted columns, else another character that does.

Cells of CSV and TSV are read as they are ("007" stays "007"); those with a delimiter or
a line break inside are quoted with `"`. If Arrow cannot read a row, it does not say
which: the file is read again, slowly, to find it.

JSONL files are read twice. The first pass finds every column and a type that fits all
its values, so that a column that only a late row has is not lost. A list among the
values of a column makes all of them lists; values of several kinds become text.
"""

import codecs
import csv
import gzip
import io
import json
import re
import shutil
import sys
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple

import pyarrow as pa
import pyarrow.csv as arrow_csv
from pyarrow import parquet

from textcapsules.base.errors import ConfigError, DataError, warn

__all__ = [
    "DELIMITERS",
    "UNSPECIFIED",
    "Numbered",
    "TextFormat",
    "as_utf8",
    "check_file",
    "check_format",
    "compression",
    "form_of",
    "numbered_batches",
    "read_text",
    "settle_format",
    "to_json",
]

FORMS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
}
FORM_NAMES = {"parquet": "Parquet"}  # where a form's name is no abbreviation
DELIMITERS = {"csv": ",", "tsv": "\t"}  # unless another one is named or found
BLOCK = 1 << 24  # bytes of CSV parsed at a time; no row may be longer
UNCLOSED = "a quotation mark never closed"
UNREADABLE = (OSError, EOFError, zlib.error, pa.ArrowException, UnicodeDecodeError)
UTF_8 = "utf-8"
CANDIDATES = (",", ";", "\t", "|")  # delimiters of CSV files, the usual one first
# UTF-32's mark comes before UTF-16's, with which it begins.
MARKS = {
    codecs.BOM_UTF8: UTF_8,
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
SAMPLE = 1 << 16  # characters read to find the delimiter
MAX_DEPTH = 60  # of nested lists and objects; Arrow's own format reads 64
CHUNK = 4096  # JSONL rows read together in the first pass
SURROGATE = re.compile("[\ud800-\udfff]")
SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")  # half of a pair, or a whole pair


class Numbered(NamedTuple):
    """Rows, each with its number as a reader of the file counts."""

    batch: pa.RecordBatch
    numbers: Sequence[int]


class TextFormat(NamedTuple):
    """How a table of text is written; None means that the file decides."""

    delimiter: str | None = None
    encoding: str | None = None


UNSPECIFIED = TextFormat()


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
            # Refuses those of Python's codecs that turn bytes into bytes.
            io.TextIOWrapper(io.BytesIO(), encoding=encoding)
            encoding = codecs.lookup(encoding).name
        except (LookupError, ValueError) as error:
            raise ConfigError(
                "encoding must be one that Python knows, as utf-8, latin-1, cp1252 or "
                f"utf-16; got {encoding!r}."
            ) from error
    return TextFormat(delimiter, encoding)


def form_of(path: Path) -> str:
    """Return csv, tsv, jsonl or parquet, by the name's ending."""
    name = path.name.lower()
    form = FORMS.get(Path(name.removesuffix(".gz")).suffix)
    if form is None or (form == "parquet" and name.endswith(".gz")):
        raise DataError(
            f"{path} must end in {', '.join(FORMS)} (all but the last also .gz); "
            f"got {path.suffix!r}."
        )
    return form


def settle_format(
    path: Path, wanted: Sequence[str], given: TextFormat = UNSPECIFIED
) -> TextFormat:
    """Return how a file is written: as given, by its ending, or by its content.

    What does not apply to its form is None: Parquet has no encoding, JSONL no
    delimiter. A found delimiter that is not the usual one causes a warning.
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
    check_file(path)
    try:
        encoding = find_encoding(path, encoding)
        if form == "csv":
            check_first_line(path, encoding)
        if form == "csv" and delimiter is None:
            delimiter = find_delimiter(path, encoding, wanted)
            if delimiter != DELIMITERS[form]:
                name = "a tab" if delimiter == "\t" else repr(delimiter)
                warn(
                    f"{path}: the cells are read as separated by {name}, as its first "
                    "lines are. Pass --delimiter if that is wrong."
                )
    except UNREADABLE as error:
        raise unreadable(path, form, given.encoding or "utf-8", error) from error
    return TextFormat(delimiter or DELIMITERS.get(form), encoding)


def numbered_batches(
    path: Path,
    wanted: Sequence[str],
    batch_rows: int,
    given: TextFormat = UNSPECIFIED,
) -> Iterator[Numbered]:
    """Yield the file's rows, at most `batch_rows` together; faults are `DataError`s."""
    form = form_of(path)
    check_file(path)
    settled = settle_format(path, wanted, given)
    n_rows = 0
    try:
        for batch, numbers in read_form(path, form, settled, batch_rows):
            require_columns(path, batch.schema.names, wanted)
            for start in range(0, batch.num_rows, batch_rows):
                part = batch.slice(start, batch_rows)
                first = n_rows + start + 1
                row_numbers = range(first, first + part.num_rows)
                line_numbers = numbers[start : start + batch_rows]
                yield Numbered(part, line_numbers or row_numbers)
            n_rows += batch.num_rows
    except UNREADABLE as error:
        encoding = settled.encoding or "utf-8"
        reason = find_fault(path, settled)
        raise unreadable(path, form, encoding, reason or error) from error


def check_file(path: Path) -> None:
    """Refuse a path that is no file."""
    if path.is_dir():
        raise DataError(f"{path} must be a file; got a folder. Name a file in it.")
    if not path.is_file():
        raise DataError(f"{path} must be a file; got no such file. Check the name.")


def unreadable(
    path: Path, form: str, encoding: str, reason: str | Exception
) -> DataError:
    """Return the error about a file that cannot be read."""
    reason = str(getattr(reason, "strerror", None) or reason).splitlines()[0]
    # Arrow's own words on files without a byte, which say no more.
    if (path.is_file() and not path.stat().st_size) or reason == "Empty CSV file":
        reason = "an empty one. Name a file with texts"
    # Parquet has no encoding, and some of Arrow's sentences have their full stop.
    what = FORM_NAMES.get(form, form.upper())
    coded = "" if form == "parquet" else f" in {encoding.upper()}"
    return DataError(
        f"{path} must be a readable {what} file{coded}; got {reason.rstrip('.')}."
    )


def read_form(
    path: Path, form: str, settled: TextFormat, batch_rows: int
) -> Iterator[Numbered]:
    """Yield the rows of a file; without numbers, unless they are those of lines."""
    if form == "parquet":
        # Else all columns of the whole file would be fetched ahead, and kept.
        with parquet.ParquetFile(path, pre_buffer=False) as file:
            for batch in file.iter_batches(batch_size=batch_rows):
                yield Numbered(batch, ())
        return
    assert settled.encoding is not None
    if form == "jsonl":
        for batch, numbers in json_batches(path, settled.encoding, batch_rows):
            yield Numbered(batch, numbers)
    else:
        for batch in read_csv(path, settled):
            yield Numbered(batch, ())


def require_columns(path: Path, names: Sequence[str], wanted: Sequence[str]) -> None:
    """Refuse a table that has a wanted column not at all, or more than once."""
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


def compression(path: Path) -> str | None:
    """Return Arrow's name for a file's compression, by the ending of its name."""
    return "gzip" if path.suffix.lower() == ".gz" else None


def open_bytes(path: Path) -> IO[bytes]:
    """Open a file, uncompressed, as bytes."""
    return gzip.open(path) if compression(path) else path.open("rb")  # type: ignore


def open_text(path: Path, encoding: str, errors: str = "strict") -> IO[str]:
    """Open a file as text, without its byte order mark and with its own line ends."""
    name = "utf-8-sig" if encoding == UTF_8 else encoding
    return io.TextIOWrapper(open_bytes(path), encoding=name, errors=errors, newline="")


@contextmanager
def as_utf8(path: Path, encoding: str) -> Iterator[Path]:
    """Yield a file in UTF-8 with the same content, a temporary one if it must be.

    Arrow could recode by itself, but it calls Python for that from another thread: if
    the program ends on an error meanwhile, the system aborts it.
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
    # A Latin letter in UTF-16 is one byte of its own beside a zero.
    for encoding, zeros in (("utf-16-le", start[1::2]), ("utf-16-be", start[::2])):
        if zeros.count(0) > len(start) // 4:
            raise DataError(
                f"{path} must be in UTF-8, or begin with a byte order mark; got what "
                f"looks like UTF-16 without one. Pass --encoding {encoding}."
            )
    return UTF_8


def check_first_line(path: Path, encoding: str) -> None:
    """Refuse a first line that tells Excel the delimiter: it is no row of the table."""
    with open_text(path, encoding, "replace") as file:
        line = file.readline(20).strip().strip('"')
    if match := re.fullmatch(r"sep=(.)", line, re.IGNORECASE):
        raise DataError(
            f"{path} must begin with the names of its columns; got {line!r}, a line "
            f"for Excel. Remove it, and pass --delimiter {match[1]!r}."
        )


def undecodable(path: Path, encoding: str) -> str | None:
    """Return which byte of which line is not in the encoding; None if all are."""
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
    """Return what to do about a byte that is not in the encoding."""
    if encoding != UTF_8:
        return ". Pass another --encoding"
    # Latin-1 has no letters there; Windows has quotation marks and dashes.
    other = "cp1252" if 0x80 <= byte < 0xA0 else "latin-1"
    return (
        f". If it was written in another encoding, name it, as --encoding {other}; "
        "else mend that line"
    )


def find_delimiter(path: Path, encoding: str, wanted: Sequence[str]) -> str:
    """Return the character between the cells of a CSV file, by its first lines.

    It is the first of `CANDIDATES` with which the header has the wanted columns; if
    there is none, the first with which all rows have as many cells as the header, and
    more than one; if there is none, a comma.
    """
    with open_text(path, encoding, errors="replace") as file:
        sample = file.read(SAMPLE)
    is_cut = len(sample) == SAMPLE
    tables = {each: sample_rows(sample, each, is_cut) for each in CANDIDATES}
    for delimiter, rows in tables.items():
        if rows and all(name in rows[0] for name in wanted):
            return delimiter
    for delimiter, rows in tables.items():
        if len({len(row) for row in rows}) == 1 and len(rows[0]) > 1:
            return delimiter
    return CANDIDATES[0]


def sample_rows(sample: str, delimiter: str, is_cut: bool) -> list[list[str]]:
    """Return the sample's rows, without the last one if it may be cut off."""
    # `newline=""` keeps line ends as they are: they may be inside quotation marks.
    rows = list(
        filter(None, csv.reader(io.StringIO(sample, newline=""), delimiter=delimiter))
    )
    return rows[:-1] if is_cut and len(rows) > 1 else rows


def read_text(path: Path, given: TextFormat) -> str:
    """Return the content of a file that is one text."""
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


def read_csv(path: Path, settled: TextFormat) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a CSV or TSV file, all cells as text."""
    delimiter, encoding = settled
    assert delimiter is not None and encoding is not None
    last = ""
    options: dict[str, Any] = {
        "read_options": arrow_csv.ReadOptions(block_size=BLOCK),
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
    # Arrow accepts the end of the file as the end of a quoted cell.
    if "\n" in last and UNCLOSED in (find_fault(path, settled) or ""):
        raise pa.ArrowInvalid(UNCLOSED)


def find_fault(path: Path, settled: TextFormat) -> str | None:
    """Return which line Arrow could not read, and why; None if nothing is found."""
    delimiter, encoding = settled
    if encoding is None:
        return None
    try:
        if fault := undecodable(path, encoding):
            return fault
        if delimiter is not None:
            with open_text(path, encoding) as lines:
                return csv_fault(lines, delimiter)
    except (OSError, EOFError, zlib.error):
        pass
    return None


def csv_fault(lines: Iterable[str], delimiter: str) -> str | None:
    """Return the first row that is not as the header, and why; None if all are."""
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
        return f"{UNCLOSED if unclosed else error} in row {n_rows}"
    finally:
        csv.field_size_limit(limit)
    return None


class Row(NamedTuple):
    """One object of a JSONL file."""

    number: int  # its line, counted from 1
    cells: dict[str, Any]
    mended: int  # cells in which a lone surrogate was replaced


def json_batches(
    path: Path, encoding: str, batch_rows: int
) -> Iterator[tuple[pa.RecordBatch, list[int]]]:
    """Yield the rows of a JSONL file, with the numbers of their lines."""
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
    # A column that is null in every row counts as text.
    empty = {pa.null(): pa.string(), pa.list_(pa.null()): pa.list_(pa.string())}
    return {name: empty.get(kind, kind) for name, kind in types.items()}


def merge_types(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Return a type for the values of both; a list of them if either has lists."""
    if pa.types.is_list(one) or pa.types.is_list(other):
        items = [t.value_type if pa.types.is_list(t) else t for t in (one, other)]
        return pa.list_(merge_items(*items))
    return merge_items(one, other)


def merge_items(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Return a type for the values of both; text if there is no other."""
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
    too_deep = f"more than {MAX_DEPTH} lists or objects inside one another"
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
            f"{path} must hold one JSON object per line; got {got} in line {number}."
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
    """Tell whether lists and objects are nested deeper than `MAX_DEPTH`."""
    if line.count("[") + line.count("{") <= MAX_DEPTH:
        return False
    level = [value]
    for _ in range(MAX_DEPTH + 1):
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
