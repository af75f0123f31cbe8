"""What a person decided about texts: a log that only grows, and a table made from it.

Each decision is one line of JSON, appended under a lock and flushed to the disk: a
crash loses nothing, and several programs may write at once. The last decision about a
text wins. A decision that is undone is not removed; the undoing is a line too. A line
that a crash cut short is left out when the log is read, with a warning.

A log belongs to one model, known by its weights. The place of a text in the random
order of its pool is logged as well: the texts at the first places, once all of them are
decided, are a random sample of the pool, whichever way each of them came up.
"""

import errno
import json
import os
import sys
import time
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

import pyarrow as pa

from textcapsules.base.errors import DataError, WriteError, warn
from textcapsules.base.files import file_sha256, write_error
from textcapsules.data.table import open_writer
from textcapsules.data.table_formats import (
    DELIMITERS,
    TextFormat,
    check_file,
    form_of,
    numbered_batches,
)

__all__ = [
    "Review",
    "ReviewLog",
    "export_reviews",
    "log_path",
    "read_reviews",
]

LOG_ENDING = ".log.jsonl"
SEPARATOR = ";"  # between the labels of a cell
DRAWN = "drawn"  # the column that says how a text came up
RANDOM, UNCERTAIN = "random", "uncertain"
# Errors of file systems without locks, such as some network drives.
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


class Review(NamedTuple):
    """A text with all its labels, perhaps none, as a person decided."""

    text: str
    labels: tuple[str, ...]
    is_random: bool = True  # of a random sample, so that it may stand for other texts


class Entry(NamedTuple):
    """One line of a log."""

    id: str
    action: str  # "label", "skip", "undo" or "export"
    text: str = ""
    labels: tuple[str, ...] = ()
    pool: str = ""  # which texts were there to draw from
    place: int = -1  # of the text in the pool's random order
    of: str = ""  # the line that is undone, or the SHA-256 of a table exported
    model: str = ""
    time: str = ""


def log_path(table: Path | str) -> Path:
    """Return the log beside a table of reviews.

    >>> log_path("runs/reviewed.csv").name
    'reviewed.csv.log.jsonl'
    """
    table = Path(table)
    return table.with_name(table.name + LOG_ENDING)


class ReviewLog:
    """The decisions about texts of one model, on disk.

    Args:
        path: the log; it need not exist yet.
        model: identity of the model; a log of another one is refused.
    """

    def __init__(self, path: Path | str, model: str) -> None:
        self.path, self.model = Path(path), model
        self._read = 0  # bytes of the log that are in `_entries`
        self._entries: list[Entry] = []
        self.entries()

    def entries(self) -> list[Entry]:
        """Return all lines, also those that other programs have added."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._read)
                content = file.read()
        except FileNotFoundError:
            return self._entries
        except OSError as error:
            raise DataError(
                f"{self.path} must be a readable review log; got {error.strerror}."
            ) from error
        whole = content[: content.rfind(b"\n") + 1]  # another program may be writing
        self._read += len(whole)
        for line in whole.splitlines():
            entry = parse_entry(line)
            if entry is None:
                warn(
                    f"{self.path}: a line that no decision can be read from is left "
                    "out; a crash may have cut it short."
                )
            elif entry.model != self.model:
                raise DataError(
                    f"{self.path} must be a review log of this model "
                    f"({self.model or 'unknown'}); got one of another "
                    f"({entry.model or 'unknown'}). Name another file of reviews; "
                    "nothing was changed."
                )
            else:
                self._entries.append(entry)
        return self._entries

    def append(self, action: str, **values: Any) -> Entry:
        """Add a line, on the disk when this returns."""
        moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        entry = Entry(uuid.uuid4().hex, action, model=self.model, time=moment)
        entry = entry._replace(**values)
        fields = {name: value for name, value in entry._asdict().items() if value != ""}
        line = json.dumps(fields, ensure_ascii=False) + "\n"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with locked_end(self.path) as file:
                if ends_within_line(file):  # of a program that was killed
                    file.write(b"\n")
                file.write(line.encode("utf-8", "surrogatepass"))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise write_error(self.path, error) from error
        self.entries()
        return entry

    def undo(self, entry: str | None = None) -> Entry | None:
        """Undo a decision by its id, or the last one; return it, or None."""
        standing = self.standing()
        undone = next(
            (each for each in reversed(standing) if entry in (None, each.id)), None
        )
        if undone is not None:
            self.append("undo", of=undone.id)
        return undone

    def standing(self) -> list[Entry]:
        """Return the decisions and skips that are not undone, in their order."""
        entries = self.entries()
        undone = {entry.of for entry in entries if entry.action == "undo"}
        return [
            entry
            for entry in entries
            if entry.action in ("label", "skip") and entry.id not in undone
        ]

    def decided(self) -> dict[str, Entry]:
        """Return the last decision about each text, or that it was skipped."""
        return {entry.text: entry for entry in self.standing()}

    def reviews(self) -> list[Review]:
        """Return the texts with their labels, in the order of the log."""
        decided = self.decided()
        sampled = random_sample(decided.values())
        return [
            Review(entry.text, entry.labels, text in sampled)
            for text, entry in decided.items()
            if entry.action == "label"
        ]


def parse_entry(line: bytes) -> Entry | None:
    """Read one line of a log; None if it is damaged."""
    try:
        values = json.loads(line.decode("utf-8", "surrogatepass"))
        entry = Entry(**values)
        return entry._replace(labels=tuple(map(str, entry.labels)))
    except (ValueError, TypeError, RecursionError):
        return None


def random_sample(decided: Iterable[Entry]) -> set[str]:
    """Return the texts at the first places of their pool's order, as far as decided."""
    pools: dict[str, dict[int, str]] = defaultdict(dict)
    for entry in decided:
        pools[entry.pool][entry.place] = entry.text
    sample = set()
    for by_place in pools.values():
        place = 0
        while place in by_place:
            sample.add(by_place[place])
            place += 1
    return sample


@contextmanager
def locked_end(path: Path) -> Iterator[IO[bytes]]:
    """Open a file to append to, once no other program does."""
    with path.open("ab+") as file:
        wait_for_lock(file)  # released when the file is closed
        yield file


def wait_for_lock(file: IO[bytes]) -> None:
    """Lock a file, after all others that want to."""
    try:
        if sys.platform == "win32":
            import msvcrt

            file.seek(1 << 30)  # past the content, which others must be able to read
            msvcrt.locking(file.fileno(), msvcrt.LK_LOCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise


def ends_within_line(file: IO[bytes]) -> bool:
    """Tell whether the last line of a file has no end."""
    if file.seek(0, os.SEEK_END) == 0:
        return False
    file.seek(-1, os.SEEK_END)
    return file.read(1) != b"\n"


def export_reviews(
    log: ReviewLog, path: Path | str, *, text_column: str, label_column: str
) -> int:
    """Write the reviewed texts as a table; return how many there are.

    An existing file is replaced only if it is an export of this log, unchanged.
    """
    path = Path(path)
    check_export(log, path)
    reviews = log.reviews()
    rows = {
        text_column: [review.text for review in reviews],
        label_column: label_cells(path, reviews),
        DRAWN: [RANDOM if review.is_random else UNCERTAIN for review in reviews],
    }
    kind = pa.string() if form_of(path) in DELIMITERS else pa.list_(pa.string())
    schema = pa.schema(
        [(text_column, pa.string()), (label_column, kind), (DRAWN, pa.string())]
    )
    partial = path.with_name(f".{os.getpid()}.{path.name}")
    try:
        with open_writer(partial, schema, overwrite=True) as writer:
            writer.write(pa.record_batch(list(rows.values()), schema=schema))
        log.append("export", of=file_sha256(partial))  # before the file can be found
        partial.replace(path)
    except OSError as error:
        raise write_error(path, error) from error
    finally:
        partial.unlink(missing_ok=True)
    return len(reviews)


def check_export(log: ReviewLog, path: Path) -> None:
    """Refuse to replace what this log has not exported."""
    form_of(path)
    if path.is_dir():
        raise WriteError(f"{path} must be a file to write; got a folder. Name a file.")
    if not path.exists():
        return
    exported = {entry.of for entry in log.entries() if entry.action == "export"}
    if file_sha256(path) not in exported:
        raise WriteError(
            f"{path} must not exist yet, or be as the review left it; got a file with "
            "other content. Name another --out, or move it away."
        )


def label_cells(path: Path, reviews: Sequence[Review]) -> list[Any]:
    """Return the labels as lists, or as text where a cell cannot hold a list."""
    lists = [list(review.labels) for review in reviews]
    if form_of(path) not in DELIMITERS:
        return lists
    names = {label for labels in lists for label in labels}
    if any(SEPARATOR in name or name.startswith("[") for name in names):
        return [json.dumps(labels, ensure_ascii=False) for labels in lists]
    return [f"{SEPARATOR} ".join(labels) for labels in lists]


def read_reviews(
    path: Path | str,
    *,
    model: str | None = None,
    text_column: str = "text",
    label_column: str = "label",
    separator: str | None = None,
    delimiter: str | None = None,
    encoding: str | None = None,
) -> list[Review]:
    """Read texts with all their labels: a table, or the log of a review.

    A row may have no label. Of a text that comes twice the last row counts. If the log
    of a table lies beside it, the texts must be those of the log.

    Args:
        path: CSV, TSV, JSONL or Parquet, or a log.
        model: identity of the model that must have been reviewed, where a log says
            which one it was.
        text_column: holds the texts.
        label_column: holds the labels.
        separator: stands between the labels of a cell; by default a semicolon.
        delimiter: as for `read_table`.
        encoding: as for `read_table`.
    """
    path = Path(path)
    if path.name.endswith(LOG_ENDING):
        check_file(path)
        reviews = ReviewLog(path, log_model(path) if model is None else model).reviews()
    else:
        given = TextFormat(delimiter, encoding)
        columns = text_column, label_column
        reviews = list(read_rows(path, columns, separator or SEPARATOR, given))
        check_texts(path, reviews, model)
    if not reviews:
        raise DataError(f"{path} must hold reviewed texts; got none. Review some.")
    return list({review.text: review for review in reviews}.values())


def read_rows(
    path: Path, columns: tuple[str, str], separator: str, given: TextFormat
) -> Iterator[Review]:
    """Yield the rows of a table."""
    for batch, numbers in numbered_batches(path, columns, 8192, given):
        for number, row in zip(numbers, batch.to_pylist(), strict=True):
            text, cell = (row[name] for name in columns)
            if not isinstance(text, str) or not text.strip():
                raise DataError(
                    f"{path} must have a text in each row; got {text!r:.40} in "
                    f"{columns[0]!r}, row {number}. Fill it in or drop the row; "
                    "nothing was changed."
                )
            # A table that no review has exported is a sample as it is.
            is_random = row.get(DRAWN, RANDOM) != UNCERTAIN
            yield Review(text, parse_labels(cell, separator), is_random)


def parse_labels(cell: Any, separator: str) -> tuple[str, ...]:
    """Return the labels of a cell, in their order, each once.

    >>> parse_labels("pay; login", ";"), parse_labels('["a;b"]', ";")
    (('pay', 'login'), ('a;b',))
    >>> parse_labels(None, ";"), parse_labels(3, ";")
    ((), ('3',))
    """
    if isinstance(cell, str) and cell.startswith("["):
        with suppress(ValueError):
            cell = json.loads(cell)
    if isinstance(cell, str):
        cell = cell.split(separator)
    elif not isinstance(cell, list):
        cell = [] if cell is None or cell != cell else [cell]
    named = (str(label).strip() for label in cell if label is not None)
    return tuple(dict.fromkeys(label for label in named if label))


def check_texts(path: Path, reviews: Sequence[Review], model: str | None) -> None:
    """Refuse a table whose log lies beside it and holds other texts."""
    beside = log_path(path)
    if not beside.is_file():
        return
    log = ReviewLog(beside, log_model(beside) if model is None else model)
    known = {entry.text for entry in log.entries()}
    for number, review in enumerate(reviews, start=1):
        if review.text not in known:
            raise DataError(
                f"{path} must hold the texts of its log, {beside.name}; got another "
                f"text in row {number}: {review.text!r:.40}. Restore the text, or copy "
                "the table to another name; nothing was changed."
            )


def log_model(path: Path) -> str:
    """Return the model that a log belongs to, by its first line."""
    with path.open("rb") as file:
        entry = parse_entry(file.readline())
    return "" if entry is None else entry.model
