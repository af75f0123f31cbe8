"""Pretrained word vectors for the words of a vocabulary.

A file may be `.npz` (arrays `words` and `vectors`, no pickles), word2vec's binary or
text form, or GloVe's text without a header line, each gzipped or not; the content
decides, not the name. The text and binary forms are read as a stream of which only the
words asked for are kept, so a file far larger than memory will do. A word must match
exactly: the file's `Paris` does not serve the vocabulary's `paris`. An `.npz` may have
a further array `real` (bool), which tells true vectors from estimates.
"""

import gzip
import io
import re
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple, cast

import numpy as np

from textcapsules.base.errors import DataError

__all__ = [
    "Coverage",
    "Vectors",
    "coverage",
    "load_vectors",
    "other_words",
    "random_vectors",
    "words_with_vectors",
]

_HEADER = re.compile(rb"(\d+) (\d+)\s*")
_LONGEST_LINE = 1 << 24  # a file without line breaks is no text
_CHUNK = 1 << 22  # bytes of a binary file read at a time
_Padding = Literal["zero", "random"]


class Vectors(NamedTuple):
    """The embedding matrix of a vocabulary."""

    matrix: np.ndarray  # (n_words, V) float32
    is_found: np.ndarray  # (n_words + n_extra,) bool: the row comes from the file
    extra: np.ndarray  # (n_extra, V) float16: the file's vectors of further words
    is_real: np.ndarray | None  # the same, and no estimate; None: the file has no marks

    @property
    def n_found(self) -> int:
        """The number of words that have a vector in the file."""
        return int(self.is_found.sum())


class Coverage(NamedTuple):
    """Shares, from 0 to 1, of what has a vector."""

    types: float  # of the different words
    tokens: float  # of their occurrences


class _Source(NamedTuple):
    """An opened file of vectors, whatever its form."""

    size: int  # V
    entries: Iterator[tuple[str, Any]]  # each word and its vector, still unread
    read: Callable[[Any], np.ndarray]  # such a vector -> (V,)
    real: np.ndarray | None = None  # which entries are no estimates, if known


def load_vectors(
    path: Path | str,
    words: Sequence[str],
    extra_words: Sequence[str] = (),
    *,
    seed: int,
    low: float = -0.25,
    high: float = 0.25,
    padding: _Padding = "zero",
) -> Vectors:
    """Return a row for each word; words without a vector get uniform(low, high).

    The drawn numbers depend on the seed and on a word's place alone. Row 0 is padding:
    zero, or drawn like an unknown word. Of a word that the file has twice, the first
    vector counts.

    Args:
        path: the file.
        words: of the vocabulary, in row order.
        extra_words: further words that the file has (see `other_words`).
        seed: of the drawn numbers.
        low: smallest drawn number.
        high: largest drawn number.
        padding: what row 0 is.
    """
    n_words = len(words)
    rows = {word: row for row, word in enumerate((*words, *extra_words)) if row > 0}
    with _open_source(Path(path)) as source:
        drawn = random_vectors(
            words, source.size, seed=seed, low=low, high=high, padding=padding
        )
        extra = np.zeros((len(extra_words), source.size), dtype=np.float16)
        is_found = np.zeros(n_words + len(extra_words), dtype=bool)
        is_real = None if source.real is None else np.zeros_like(is_found)
        for place, (word, unread) in enumerate(source.entries):
            row = rows.pop(word, None)
            if row is None:
                continue
            vector = source.read(unread)
            if not np.isfinite(vector).all():
                raise DataError(
                    f"{path} must hold finite numbers; got {vector[:3]} … for {word!r}."
                )
            is_found[row] = True
            if is_real is not None and source.real is not None:
                is_real[row] = source.real[place]
            if row < n_words:
                drawn.matrix[row] = vector
            else:
                extra[row - n_words] = _half_precision(path, word, vector)
    return Vectors(drawn.matrix, is_found, extra, is_real)


def _half_precision(path: Path | str, word: str, vector: np.ndarray) -> np.ndarray:
    limit = float(np.finfo(np.float16).max)
    if np.abs(vector).max() > limit:
        raise DataError(
            f"{path} must hold numbers of at most {limit:.0f}, which half precision "
            f"can store; got {np.abs(vector).max():g} for {word!r}. Scale the vectors, "
            "or pass --words-from train."
        )
    return vector.astype(np.float16)


def random_vectors(
    words: Sequence[str],
    size: int,
    *,
    seed: int,
    low: float = -0.25,
    high: float = 0.25,
    padding: _Padding = "zero",
) -> Vectors:
    """Return drawn rows for all words, as `load_vectors` draws the missing ones."""
    random = np.random.default_rng(seed)
    matrix = random.uniform(low, high, (len(words), size)).astype(np.float32)
    if padding == "zero":
        matrix[:1] = 0.0
    is_found, extra = np.zeros(len(words), dtype=bool), np.zeros((0, size), np.float16)
    return Vectors(matrix, is_found, extra, None)


def words_with_vectors(path: Path | str, words: Iterable[str]) -> list[str]:
    """Return which of `words` have a vector, in their order."""
    asked = dict.fromkeys(words)
    with _open_source(Path(path)) as source:
        present = {word for word, _ in source.entries if word in asked}
    return [word for word in asked if word in present]


def other_words(
    path: Path | str,
    words: Iterable[str],
    *,
    limit: int,
    is_token: Callable[[str], bool],
) -> tuple[list[str], int]:
    """Return the file's first words not among `words`, and how many are left out.

    Args:
        path: the file, whose most frequent words come first.
        words: already known.
        limit: of the words returned; those after them are only counted.
        is_token: whether a text can hold the word. Others would be of no use.
    """
    known, others, left_out = set(words), {}, 0
    with _open_source(Path(path)) as source:
        for word, _ in source.entries:
            if word in known or word in others:
                continue
            if len(others) == limit:
                left_out += 1
            elif is_token(word):
                others[word] = None
    return list(others), left_out


def coverage(covered: Collection[str], counts: Mapping[str, int]) -> Coverage:
    """Return how much of a corpus, given as word counts, has a vector.

    >>> coverage({"film"}, {"film": 3, "xyzzy": 1})
    Coverage(types=0.5, tokens=0.75)
    """
    known = set(covered)
    covered_counts = [count for word, count in counts.items() if word in known]
    n_tokens = sum(counts.values())
    return Coverage(
        len(covered_counts) / len(counts) if counts else 0.0,
        sum(covered_counts) / n_tokens if n_tokens else 0.0,
    )


@contextmanager
def _open_source(path: Path) -> Iterator[_Source]:
    """Open a file of vectors by its first bytes; faults become `DataError`."""
    try:
        with path.open("rb") as raw:
            file = cast(BinaryIO, raw)
            if raw.peek(2)[:2] == b"\x1f\x8b":
                file = cast(BinaryIO, io.BufferedReader(gzip.GzipFile(fileobj=raw)))
            start = cast(io.BufferedReader, file).peek(4)[:4]
            yield _npz(path, file) if start == b"PK\x03\x04" else _lines(path, file)
    except (OSError, EOFError, zlib.error, zipfile.BadZipFile) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(
            f"{path} must be a readable file of word vectors; got {reason}."
        ) from error


def _npz(path: Path, file: BinaryIO) -> _Source:
    try:
        with np.load(file, allow_pickle=False) as arrays:
            words, vectors = arrays["words"], arrays["vectors"]
            real = arrays["real"] if "real" in arrays.files else None
    except (KeyError, ValueError) as error:
        raise DataError(
            f"{path} must hold arrays `words` and `vectors` without pickles; "
            f"got {str(error).splitlines()[0]}."
        ) from error
    fits = words.dtype.kind == "U" and vectors.dtype.kind == "f" and vectors.ndim == 2
    if not fits or words.shape != vectors.shape[:1] or not vectors.size:
        raise DataError(
            f"{path} must hold n words as text and n x V vectors of floats; got "
            f"{words.dtype} {words.shape} and {vectors.dtype} {vectors.shape}."
        )
    if real is not None and (real.dtype != bool or real.shape != words.shape):
        real = None
    # Rows are converted as they are asked for: float16 halves what is held here.
    return _Source(
        vectors.shape[1],
        zip(words.tolist(), vectors, strict=True),
        lambda row: row.astype(np.float32),
        real,
    )


def _lines(path: Path, file: BinaryIO) -> _Source:
    """Read one of the three line-based forms, known by its first two lines."""
    first = file.readline(_LONGEST_LINE)
    header = _HEADER.fullmatch(first)
    if not header:
        size = len(first.split()) - 1
        entries = _text(path, chain([first], file), size, None)
        return _checked_text(path, size, first, entries)
    n_words, size = int(header[1]), int(header[2])
    if size < 1:
        raise DataError(f"{path} must hold vectors of at least 1 number; got size 0.")
    line = file.readline(_LONGEST_LINE)
    if len(line.split()) == size + 1 and _numbers(line.split()[1:]) is not None:
        entries = _text(path, chain([line], file), size, n_words)
        return _checked_text(path, size, line, entries)
    entries = _binary(path, file, line, (n_words, size))
    return _Source(size, entries, lambda data: np.frombuffer(data, "<f4"))


def _checked_text(path: Path, size: int, line: bytes, entries: Iterator) -> _Source:
    if size < 1 or _numbers(line.split()[1:]) is None:
        raise DataError(
            f"{path} must be .npz, word2vec or GloVe vectors; "
            f"got {line[:40]!r} at its start."
        )

    def read(unread: tuple[int, bytes]) -> np.ndarray:
        number, fields = unread
        vector = _numbers(fields.split())
        if vector is None:
            raise DataError(
                f"{path} must hold numbers after each word; "
                f"got {fields[:40]!r} as vector {number}."
            )
        return vector

    return _Source(size, entries, read)


def _text(
    path: Path, lines: Iterable[bytes], size: int, n_words: int | None
) -> Iterator[tuple[str, tuple[int, bytes]]]:
    number = 0
    for number, line in enumerate(lines, start=1):
        word, _, fields = line.rstrip().partition(b" ")
        if fields.count(b" ") != size - 1:
            # GloVe's largest file has words with spaces inside: numbers end the line.
            pieces = line.rstrip().rsplit(b" ", size)
            word, fields = pieces[0], b" ".join(pieces[1:])
            last = word.rpartition(b" ")[2]
            if len(pieces) != size + 1 or _numbers([last]) is not None:
                raise DataError(
                    f"{path} must hold {size} numbers after each word; "
                    f"got {len(line.split()) - 1} as vector {number}."
                )
        yield word.decode(errors="replace"), (number, fields)
    if n_words is not None and number != n_words:
        raise DataError(
            f"{path} must hold {n_words} words, as its first line says; got {number}. "
            "Fetch it again."
        )


def _binary(
    path: Path, file: BinaryIO, data: bytes, shape: tuple[int, int]
) -> Iterator[tuple[str, bytes]]:
    """Yield word2vec's records: a word, a space, V little-endian floats."""
    n_words, size = shape
    position = 0
    for number in range(n_words):
        space = data.find(b" ", position)
        while space < 0 or len(data) < space + 1 + 4 * size:
            more = file.read(_CHUNK)
            if not more:
                raise DataError(
                    f"{path} must hold {n_words} words of {size} numbers, as its first "
                    f"line says; got {number}. Fetch it again."
                )
            data, position = data[position:] + more, 0
            space = data.find(b" ")
        word = data[position:space].lstrip(b"\n")
        position = space + 1 + 4 * size
        yield word.decode(errors="replace"), data[space + 1 : position]


def _numbers(fields: list[bytes]) -> np.ndarray | None:
    try:
        return np.array(fields, dtype=np.float32)
    except ValueError:
        return None
