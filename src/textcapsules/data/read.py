"""From a folder in the canonical form to a corpus split for one run.

Where a corpus has no development set, a tenth of its training texts becomes one; where
it has no test set, ten folds are drawn and one of them is it. What was read, and
whether it is what the catalogue knows, goes into the corpus's `facts`.
"""

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from textcapsules.base.errors import ConfigError, CorpusError
from textcapsules.data.canonical import (
    Document,
    parse_documents,
    parse_rows,
    read_content,
    sha256,
)
from textcapsules.data.catalogue import CATALOGUE, Card, card
from textcapsules.data.example import Corpus, Example
from textcapsules.data.split import N_FOLDS, folds, hold_out

__all__ = ["available", "cache_folder", "data_folder", "describe", "read_corpus"]

# The ten largest topics: documents with any other are left out of the paper's corpus.
TEN_TOPICS = {*card("reuters-full").labels, "wheat", "corn"}


def cache_folder() -> Path:
    """Return where downloads go if no other place is named."""
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


class Shelf:
    """One corpus's files; remembers the sum of each that was read."""

    def __init__(self, entry: Card, root: Path) -> None:
        self.entry = entry
        self.root = root
        self.sums: dict[str, str] = {}
        self.remedy = f"Run 'textcapsules data fetch {entry.name}'."

    def train_file(self) -> str:
        """Return the first of the training files that is there."""
        there = [name for name in self.entry.train if (self.root / name).exists()]
        return there[0] if there else self.entry.train[0]

    def content(self, name: str) -> bytes:
        """Return a file's uncompressed bytes."""
        content = read_content(self.root, name, self.remedy)
        self.sums[name] = sha256(content)
        return content

    def rows(self, name: str) -> list[Example]:
        """Return a table's examples."""
        return parse_rows(self.content(name), self.root / name, self.entry.labels)

    def documents(self, name: str) -> list[Document]:
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
    shelf = Shelf(entry, data_folder(data_dir))
    if not shelf.root.is_dir():
        raise CorpusError(
            f"data_dir must be a folder of corpora; got {str(shelf.root)!r}, which is "
            f"none. {shelf.remedy}"
        )
    if entry.layout == "folds":
        sets = _fold_sets(shelf, fold, dev_fraction, seed)
    elif entry.layout == "sets":
        sets = _given_sets(shelf, dev_fraction, seed)
    else:
        sets = _reuters_sets(shelf, dev_fraction, seed)
    options = {
        "fold": fold if entry.layout == "folds" else None,
        "dev_fraction": None if entry.dev else dev_fraction,
        "seed": None if entry.dev else seed,
    }
    facts = _facts(shelf) | options
    return Corpus(name, entry.labels, *sets, entry.task, entry.rule, facts)


def _take(examples: Sequence[Example], indices: Sequence[int]) -> list[Example]:
    return [examples[index] for index in indices]


def _hold_out_dev(
    examples: Sequence[Example], fraction: float, seed: int
) -> tuple[list[Example], list[Example]]:
    labels = [example.labels for example in examples]
    kept, held = hold_out(labels, fraction, seed)
    return _take(examples, kept.tolist()), _take(examples, held.tolist())


def _fold_sets(shelf: Shelf, fold: int, dev_fraction: float, seed: int) -> Sets:
    rows = shelf.rows(shelf.train_file())
    numbers = folds([row.labels for row in rows], seed)
    rest = _take(rows, (numbers != fold).nonzero()[0].tolist())
    test = _take(rows, (numbers == fold).nonzero()[0].tolist())
    train, dev = _hold_out_dev(rest, dev_fraction, seed)
    return Sets(train, dev, test)


def _given_sets(shelf: Shelf, dev_fraction: float, seed: int) -> Sets:
    entry = shelf.entry
    train = shelf.rows(shelf.train_file())
    if entry.dev:
        dev = shelf.rows(entry.dev)
    else:
        train, dev = _hold_out_dev(train, dev_fraction, seed)
    assert entry.test is not None  # the catalogue's own promise for this layout
    return Sets(train, dev, shelf.rows(entry.test))


def _reuters_sets(shelf: Shelf, dev_fraction: float, seed: int) -> Sets:
    """Split as the paper's public code does; see the card's split rule."""
    entry = shelf.entry
    order = {label: place for place, label in enumerate(entry.labels)}
    single, pool = [], []
    for document in shelf.documents(shelf.train_file()):
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


def _facts(shelf: Shelf) -> dict[str, Any]:
    entry = shelf.entry
    remarks, title = list(entry.remarks), entry.title
    files = {}
    for name, found in shelf.sums.items():
        known = entry.files[name].sha256
        matches = None if known is None else known == found
        files[name] = {"sha256": found, "matches_catalogue": matches}
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
        "files": files,
        "matches_catalogue": all(
            file["matches_catalogue"] is not False for file in files.values()
        ),
        "remarks": remarks,
    }


def available(data_dir: str | Path | None = None) -> list[dict[str, Any]]:
    """Return a record per corpus: its card in brief, and the files it still needs."""
    root = data_folder(data_dir)
    records = []
    for entry in CATALOGUE.values():
        needed = [Shelf(entry, root).train_file(), entry.dev, entry.test]
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
