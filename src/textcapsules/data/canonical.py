"""One file of the canonical form: checked, uncompressed and taken apart, or written.

A table is UTF-8, one ``label TAB text`` a line; documents are one JSON object a line;
both are gzipped. A ``SHA256SUMS`` in the file's folder or in the folder of corpora says
what the compressed file must be: one that differs is damaged.
"""

import gzip
import hashlib
import json
import re
import zlib
from collections.abc import Sequence
from pathlib import Path

from textcapsules.base.errors import CorpusError
from textcapsules.data.example import Example

__all__ = [
    "SUMS",
    "Document",
    "compress",
    "parse_documents",
    "parse_rows",
    "read_content",
    "read_sums",
    "sha256",
]

SUMS = "SHA256SUMS"
Document = dict  # split, topics, title and body of one Reuters document


def sha256(content: bytes) -> str:
    """Return the SHA-256 of some bytes, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def compress(content: bytes) -> bytes:
    """Return `content` gzipped, without a time, so that it always comes out the same.

    >>> gzip.decompress(compress(b"text"))
    b'text'
    """
    return gzip.compress(content, mtime=0)


def read_sums(folder: Path) -> dict[str, str]:
    """Return the sums a folder's ``SHA256SUMS`` lists by name, none if it has none."""
    try:
        lines = (folder / SUMS).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise CorpusError(
            f"{folder / SUMS} must be a readable list of sums; got {error}. "
            "Delete it to read the files unchecked."
        ) from error
    found = (re.fullmatch(r"([0-9a-f]{64}) [ *](?:\./)?(.+)", line) for line in lines)
    return {match[2]: match[1] for match in found if match}


def read_content(root: Path, name: str, remedy: str) -> bytes:
    """Return the uncompressed bytes of the file `name` in the folder of corpora.

    Args:
        root: The folder of corpora.
        name: The file, relative to `root`.
        remedy: What to do about a file that is missing or damaged; ends the message.
    """
    path = root / name
    try:
        packed = path.read_bytes()
    except OSError as error:
        raise CorpusError(
            f"{path} must be a readable file; got {error.strerror or error}. {remedy}"
        ) from error
    recorded = read_sums(root).get(name) or read_sums(path.parent).get(path.name)
    if recorded and recorded != sha256(packed):
        raise CorpusError(
            f"{path} must have the SHA-256 that {SUMS} lists, {recorded}; "
            f"got {sha256(packed)}, so it is damaged. {remedy}"
        )
    try:
        return gzip.decompress(packed)
    except (OSError, EOFError, zlib.error) as error:
        raise CorpusError(
            f"{path} must be a whole gzip file; got {error}. {remedy}"
        ) from error


def _lines(content: bytes, path: Path) -> list[str]:
    """Split at line feeds alone: texts may hold other marks that Python splits at."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise CorpusError(
            f"{path} must be UTF-8; got the byte 0x{content[error.start]:02x} in "
            f"line {line}. Save it as UTF-8."
        ) from error
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    if not lines:
        raise CorpusError(f"{path} must hold texts; got an empty file. Replace it.")
    return [line.removesuffix("\r") for line in lines]


def parse_rows(content: bytes, path: Path, labels: Sequence[str]) -> list[Example]:
    """Return the rows of a table, each with its one label."""
    known = set(labels)
    rows = []
    for number, line in enumerate(_lines(content, path), 1):
        label, tab, text = line.partition("\t")
        if not tab or not text.strip():
            raise CorpusError(
                f"{path} must have a label, a tab and a text in every line; "
                f"got {line[:40]!r} in line {number}. Mend or drop the line."
            )
        if label not in known:
            raise CorpusError(
                f"label must be one of {', '.join(labels)}; got {label[:40]!r} in "
                f"line {number} of {path}. Mend or drop the line."
            )
        rows.append(Example(text, (label,)))
    return rows


def parse_documents(content: bytes, path: Path) -> list[Document]:
    """Return the documents of a JSON-lines file."""
    documents = []
    for number, line in enumerate(_lines(content, path), 1):
        try:
            document = json.loads(line)
        except ValueError as error:
            document = str(error)
        if not _is_document(document):
            raise CorpusError(
                f"{path} must have an object with split, topics, title and body in "
                f"every line; got {str(document)[:60]!r} in line {number}. "
                "Mend or drop the line."
            )
        documents.append(document)
    return documents


def _is_document(value: object) -> bool:
    if not isinstance(value, dict) or value.get("split") not in ("train", "test"):
        return False
    topics = value.get("topics")
    return (
        isinstance(topics, list)
        and all(isinstance(topic, str) for topic in topics)
        and isinstance(value.get("title"), str)
        and isinstance(value.get("body"), str)
    )
