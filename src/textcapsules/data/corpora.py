"""The folder of benchmark corpora: its files read, checked, and split for one run.

All corpora have one canonical form. A table is UTF-8, one ``label TAB text`` per line;
documents are one JSON object per line; both are gzipped. A ``SHA256SUMS`` in the file's
folder or in the folder of corpora lists the sums of the compressed files: a file with
another sum is damaged.

If a corpus has no development set, a tenth of its training texts becomes one; if it has
no test set, ten folds are drawn and one of them is the test set. The corpus's `facts`
record what was read, and whether it is what the catalogue expects.
"""

import gzip
import hashlib
import json
import os
import re
import zlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from textcapsules.base.errors import ConfigError, CorpusError
from textcapsules.data.catalogue import CATALOGUE, Card, card
from textcapsules.data.example import Corpus, Example
from textcapsules.data.split import N_FOLDS, folds, hold_out

__all__ = [
    "SUMS",
    "available",
    "cache_folder",
    "compress",
    "data_folder",
    "describe",
    "read_content",
    "read_corpus",
    "read_sums",
    "sha256",
]

SUMS = "SHA256SUMS"
# The ten largest topics; the paper leaves out documents that have any other.
TEN_TOPICS = {*card("reuters-full").labels, "wheat", "corn"}


def cache_folder() -> Path:
    """Return the folder of downloads if no other one is named."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "textcapsules"


def data_folder(data_dir: str | Path | None = None) -> Path:
    """Return the folder of corpora: the option, else TEXTCAPSULES_DATA, else the cache.

    >>> data_folder("corpora").name
    'corpora'
    """
    named = data_dir or os.environ.get("TEXTCAPSULES_DATA")
    return Path(named).expanduser() if named else cache_folder()


class Sets(NamedTuple):
    """The three parts of a corpus."""

    train: list[Example]
    dev: list[Example]
    test: list[Example]


class CorpusFiles:
    """The files of one corpus, and the sum of each that was read."""

    def __init__(self, entry: Card, root: Path) -> None:
        self.entry = entry
        self.root = root
        self.sums: dict[str, str] = {}
        self.remedy = f"Run 'textcapsules data fetch {entry.name}'."

    def train_file(self) -> str:
        """Return the first of the training files that exists."""
        present = [name for name in self.entry.train if (self.root / name).exists()]
        return present[0] if present else self.entry.train[0]

    def content(self, name: str) -> bytes:
        """Return a file's uncompressed bytes."""
        content = read_content(self.root, name, self.remedy)
        self.sums[name] = sha256(content)
        return content

    def rows(self, name: str) -> list[Example]:
        """Return a table's examples."""
        return parse_rows(self.content(name), self.root / name, self.entry.labels)

    def documents(self, name: str) -> list[dict]:
        """Return a JSON-lines file's documents."""
        return parse_documents(self.content(name), self.root / name)


def read_corpus(
    name: str,
    data_dir: str | Path | None = None,
    *,
    fold: int = 0,
    dev_fraction: float = 0.1,
    seed: int = 0,
) -> Corpus:
    """Read a corpus of the catalogue and split it.

    Args:
        name: A name of the catalogue.
        data_dir: The folder of corpora; see `data_folder`.
        fold: Which fold is the test set, of a corpus that has none of its own.
        dev_fraction: Share of the training texts that becomes dev, if none is given.
        seed: Seed of the folds and of the dev set.
    """
    entry = card(name)
    if not 0 <= fold < N_FOLDS:
        raise ConfigError(f"fold must be from 0 to {N_FOLDS - 1}; got {fold}.")
    files = CorpusFiles(entry, data_folder(data_dir))
    if not files.root.is_dir():
        raise CorpusError(
            f"data_dir must be a folder of corpora; got {str(files.root)!r}, which is "
            f"none. {files.remedy}"
        )
    if entry.layout == "folds":
        sets = _fold_sets(files, fold, dev_fraction, seed)
    elif entry.layout == "sets":
        sets = _given_sets(files, dev_fraction, seed)
    else:
        sets = _reuters_sets(files, dev_fraction, seed)
    options = {
        "fold": fold if entry.layout == "folds" else None,
        "dev_fraction": None if entry.dev else dev_fraction,
        "seed": None if entry.dev else seed,
    }
    facts = _facts(files) | options
    return Corpus(name, entry.labels, *sets, entry.task, entry.rule, facts)


def _take(examples: Sequence[Example], indices: Sequence[int]) -> list[Example]:
    return [examples[index] for index in indices]


def _hold_out_dev(
    examples: Sequence[Example], fraction: float, seed: int
) -> tuple[list[Example], list[Example]]:
    labels = [example.labels for example in examples]
    kept, held = hold_out(labels, fraction, seed)
    return _take(examples, kept.tolist()), _take(examples, held.tolist())


def _fold_sets(files: CorpusFiles, fold: int, dev_fraction: float, seed: int) -> Sets:
    rows = files.rows(files.train_file())
    numbers = folds([row.labels for row in rows], seed)
    rest = _take(rows, (numbers != fold).nonzero()[0].tolist())
    test = _take(rows, (numbers == fold).nonzero()[0].tolist())
    train, dev = _hold_out_dev(rest, dev_fraction, seed)
    return Sets(train, dev, test)


def _given_sets(files: CorpusFiles, dev_fraction: float, seed: int) -> Sets:
    entry = files.entry
    train = files.rows(files.train_file())
    if entry.dev:
        dev = files.rows(entry.dev)
    else:
        train, dev = _hold_out_dev(train, dev_fraction, seed)
    assert entry.test is not None  # the catalogue's own promise for this layout
    return Sets(train, dev, files.rows(entry.test))


def _reuters_sets(files: CorpusFiles, dev_fraction: float, seed: int) -> Sets:
    """Split as the paper's public code does; see the card's split rule."""
    entry = files.entry
    order = {label: place for place, label in enumerate(entry.labels)}
    single, pool = [], []
    for document in files.documents(files.train_file()):
        topics = set(document["topics"])
        if not topics or not topics <= TEN_TOPICS:
            continue
        if not topics <= order.keys():  # wheat or corn, which no document has alone
            continue
        labels = tuple(sorted(topics, key=order.__getitem__))
        example = Example(f"{document['title']}\n{document['body']}", labels)
        trains = document["split"] == "train" and len(labels) == 1
        (single if trains else pool).append(example)
    if entry.name == "reuters-multi":
        pool = [example for example in pool if len(example.labels) > 1]
    train, dev = _hold_out_dev(single, dev_fraction, seed)
    return Sets(train, dev, pool)


def _facts(files: CorpusFiles) -> dict[str, Any]:
    entry = files.entry
    remarks, title = list(entry.remarks), entry.title
    read = {}
    for name, actual in files.sums.items():
        expected = entry.files[name].sha256
        matches = None if expected is None else expected == actual
        read[name] = {"sha256": actual, "matches_catalogue": matches}
        if matches is False:
            remarks.append(f"{name} is another version than the catalogue's.")
        if not entry.files[name].fetched:
            title += " (a subset of the training texts)"
            remarks.append(
                f"{name} holds only {entry.files[name].rows:,} of the "
                f"{entry.files[entry.train[0]].rows:,} training texts: results are not "
                "comparable with those on the full set."
            )
    return {
        "title": title,
        "source": [url for source in entry.sources for url in source.urls],
        "licence": entry.terms,
        "citation": entry.citation,
        "split": entry.split,
        "files": read,
        "matches_catalogue": all(
            file["matches_catalogue"] is not False for file in read.values()
        ),
        "remarks": remarks,
    }


def available(data_dir: str | Path | None = None) -> list[dict[str, Any]]:
    """Return one record per corpus: its card in brief, and the files it still needs."""
    root = data_folder(data_dir)
    records = []
    for entry in CATALOGUE.values():
        needed = [CorpusFiles(entry, root).train_file(), entry.dev, entry.test]
        missing = [name for name in needed if name and not (root / name).is_file()]
        records.append(
            {
                "name": entry.name,
                "title": entry.title,
                "task": entry.task,
                "labels": list(entry.labels),
                "licence": entry.terms,
                "present": not missing,
                "missing": missing,
            }
        )
    return records


def describe(corpus: Corpus) -> dict[str, Any]:
    """Return what `data show` prints: counts, lengths in words, and provenance."""
    parts = {"train": corpus.train, "dev": corpus.dev, "test": corpus.test}
    return {
        "name": corpus.name,
        "task": corpus.task,
        "rule": corpus.rule,
        "labels": list(corpus.labels),
        "splits": {part: _measure(parts[part], corpus.labels) for part in parts},
        "facts": corpus.facts,
    }


def _measure(examples: Sequence[Example], labels: Sequence[str]) -> dict[str, Any]:
    words = [len(example.text.split()) for example in examples]
    counts = Counter(label for example in examples for label in example.labels)
    return {
        "texts": len(examples),
        "several_labels": sum(len(example.labels) > 1 for example in examples),
        "per_label": {label: counts[label] for label in labels},
        "mean_words": round(sum(words) / len(words), 2) if words else 0.0,
        "longest_words": max(words, default=0),
    }


def sha256(content: bytes) -> str:
    """Return the SHA-256 of some bytes, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def compress(content: bytes) -> bytes:
    """Return `content` gzipped, without a time, so that the bytes are always the same.

    >>> gzip.decompress(compress(b"text"))
    b'text'
    """
    return gzip.compress(content, mtime=0)


def read_sums(folder: Path) -> dict[str, str]:
    """Return the sums that a folder's ``SHA256SUMS`` lists, by the files' names."""
    try:
        lines = (folder / SUMS).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise CorpusError(
            f"{folder / SUMS} must be a readable list of sums; got {error}. "
            "Delete it to read the files unchecked."
        ) from error
    matches = (re.fullmatch(r"([0-9a-f]{64}) [ *](?:\./)?(.+)", line) for line in lines)
    return {match[2]: match[1] for match in matches if match}


def read_content(root: Path, name: str, remedy: str) -> bytes:
    """Return the uncompressed bytes of the file `name` in the folder of corpora.

    Args:
        root: The folder of corpora.
        name: The file, relative to `root`.
        remedy: What to do about a missing or damaged file, as the message's end.
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
    """Split at line feeds only: Python splits at other characters too."""
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


def parse_documents(content: bytes, path: Path) -> list[dict]:
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
