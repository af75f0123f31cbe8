"""One way in to all data: a benchmark corpus, the embedded tickets, a user's file.

A user's file is checked for names of labels that are rarely meant: those of a missing
value, names that differ only in case or spacing, and several labels in one cell.
"""

import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from textcapsules.base.errors import ConfigError, CorpusError, DataError, warn
from textcapsules.base.files import file_sha256
from textcapsules.config import DataConfig
from textcapsules.data.catalogue import CATALOGUE
from textcapsules.data.corpora import available, read_corpus
from textcapsules.data.example import Corpus, Example
from textcapsules.data.reviews import read_reviews
from textcapsules.data.split import hold_out
from textcapsules.data.table import read_numbered
from textcapsules.data.tickets import TICKETS, read_tickets

__all__ = [
    "check_labels",
    "likely_separator",
    "list_corpora",
    "load_corpus",
    "load_numbered",
    "load_split",
]

SEPARATORS = (";", "|", ",", "/")  # that people put between labels of a cell
MISSING = ("nan", "null", "none", "n/a")  # what other programs write for no label


def list_corpora(data_dir: str | Path | None = None) -> list[dict[str, Any]]:
    """Return a record per corpus, the embedded tickets first (see `available`)."""
    tickets = [
        {
            "name": name,
            "title": TICKETS.title,
            "task": "multi-label" if name.endswith("multi") else "single-label",
            "labels": list(TICKETS.labels),
            "licence": TICKETS.licence,
            "present": True,
            "missing": [],
        }
        for name in TICKETS.names
    ]
    return [*tickets, *available(data_dir)]


def load_corpus(config: DataConfig) -> Corpus:
    """Return the corpus that `config.source` names, split for one run."""
    corpus = load_source(config)
    return corpus if config.add is None else with_reviews(corpus, config, config.add)


def load_source(config: DataConfig) -> Corpus:
    """Return the corpus that `config.source` names, without reviewed texts."""
    name = config.source
    if not is_file(name):
        refuse_files(config)
    if name in TICKETS.names:
        return read_tickets(name, seed=config.split_seed)
    if name in CATALOGUE:
        return read_corpus(
            name,
            config.data_dir,
            fold=config.fold,
            dev_fraction=config.dev_fraction,
            seed=config.split_seed,
        )
    if is_file(name):
        return corpus_of_file(config)
    names = ", ".join([*TICKETS.names, *CATALOGUE])
    raise CorpusError(
        f"data must be a corpus ({names}) or a .csv, .tsv, .jsonl or .parquet file; "
        f"got {name!r}."
    )


def load_split(config: DataConfig, split: str) -> Sequence[Example]:
    """Return one split of a corpus; a user's file is a split as a whole."""
    if split not in ("train", "dev", "test"):
        raise DataError(f"split must be train, dev or test; got {split!r}.")
    if is_file(config.source) and split == "test" and config.test is None:
        return read_file(config, config.source)
    # No test set depends on the texts that were added to train on.
    return getattr((load_source if split == "test" else load_corpus)(config), split)


def load_numbered(config: DataConfig) -> tuple[list[tuple[int, Example]], str]:
    """Return all texts of a user's file with their rows, and the rule that suits them.

    Of a corpus, they are the training texts, numbered from 1.
    """
    if not is_file(config.source):
        corpus = load_corpus(config)
        return list(enumerate(corpus.train, start=1)), corpus.rule
    numbered = read_rows(config, config.source)
    check_labels(config.source, [example for _, example in numbered])
    return numbered, "words"


def refuse_files(config: DataConfig) -> None:
    """Refuse a user's dev or test file for a corpus, which has its own sets."""
    for option, file in (("dev", config.dev), ("test", config.test)):
        if file is not None:
            raise ConfigError(
                f"{option} must go with a file of texts; got {file!r} beside the "
                f"corpus {config.source!r}, which has its own sets. Leave it out."
            )


def is_file(source: str) -> bool:
    """Tell whether a source is a path: no name of a corpus has a suffix."""
    return bool(Path(source).suffix) or Path(source).is_file()


def read_file(config: DataConfig, path: str) -> list[Example]:
    """Read a user's file with the columns that the options name."""
    return [example for _, example in read_rows(config, path)]


def read_rows(config: DataConfig, path: str) -> list[tuple[int, Example]]:
    """Return what `read_file` does, with the number of each row."""
    return read_numbered(
        path,
        text_column=config.text_column,
        label_column=config.label_column,
        separator=config.separator,
        delimiter=config.delimiter,
        encoding=config.encoding,
        skip_empty=config.skip_empty,
    )


def corpus_of_file(config: DataConfig) -> Corpus:
    """Return a user's file as a corpus, its dev set held out unless one is given."""
    train = read_file(config, config.source)
    check_labels(config.source, train)
    files = [config.source]
    labels = tuple(sorted({label for example in train for label in example.labels}))
    if config.dev is not None:
        dev = read_file(config, config.dev)
        files.append(config.dev)
    elif len(train) < 2:
        dev = []
    else:
        groups = [example.labels for example in train]
        kept, held = hold_out(groups, config.dev_fraction, config.split_seed)
        train, dev = [train[i] for i in kept], [train[i] for i in held]
    test: list[Example] = []
    if config.test is not None:
        test = read_file(config, config.test)
        files.append(config.test)
    several = any(len(example.labels) > 1 for example in train)
    facts = {
        "title": Path(config.source).name,
        "files": {Path(file).name: {"sha256": file_sha256(file)} for file in files},
        "seed": config.split_seed,
    }
    task = "multi-label" if several else "single-label"
    return Corpus(
        Path(config.source).name, labels, train, dev, test, task, "words", facts
    )


def with_reviews(corpus: Corpus, config: DataConfig, path: str) -> Corpus:
    """Return a corpus that is trained on reviewed texts as well.

    They are training texts, never dev texts: a few texts with several labels among the
    dev texts would be taken for what the thresholds must suit. A text of the corpus
    that was reviewed has the reviewed labels alone.
    """
    reviews = read_reviews(
        path,
        text_column=config.text_column,
        label_column=config.label_column,
        separator=config.separator,
    )
    for review in reviews:
        for label in review.labels:
            if label not in corpus.labels:
                raise DataError(
                    f"{path} must have labels of {corpus.name}: "
                    f"{', '.join(corpus.labels)}; got {label!r}. Correct it, or add "
                    "texts of that label to --data."
                )
    reviewed = {review.text for review in reviews}
    kept, dev = (
        [example for example in part if example.text not in reviewed]
        for part in (corpus.train, corpus.dev)
    )
    added = [Example(review.text, review.labels) for review in reviews]
    several = any(len(example.labels) != 1 for example in added)
    replaced = len(corpus.train) + len(corpus.dev) - len(kept) - len(dev)
    facts = {
        "file": Path(path).name,
        "sha256": file_sha256(path),
        "texts": len(added),
        "replaced": replaced,
    }
    return corpus._replace(
        train=[*kept, *added],
        dev=dev,
        task="multi-label" if several else corpus.task,
        facts={**corpus.facts, "added": facts},
    )


def check_labels(source: str, examples: Sequence[Example]) -> None:
    """Warn of labels named like a missing value, or like another, or like several."""
    counts = Counter(label for example in examples for label in example.labels)
    by_folded: dict[str, list[str]] = defaultdict(list)
    for label in sorted(counts):
        by_folded[folded(label)].append(label)
        if label.casefold() in MISSING:
            warn(
                f"{source}: label {label!r} of {n_texts(counts[label])} is taken as "
                "the name of a class. If it stands for a missing label, empty those "
                "cells and pass --skip-empty."
            )
    for labels in by_folded.values():
        if len(labels) > 1:
            named = [f"{label!r} ({n_texts(counts[label])})" for label in labels]
            warn(
                f"{source}: labels {', '.join(named[:-1])} and {named[-1]} differ only "
                f"in case or spacing and are taken as {len(labels)} classes. Spell "
                "them alike if they are one."
            )
    if separator := likely_separator(counts):
        # Where a separator was given, no label has it any more.
        made = [label for label in sorted(counts) if separator in label]
        warn(
            f"{source}: {len(made):,} of {len(counts):,} labels, as {made[0]!r}, are "
            "made of others, and each of them is taken as a class of its own. If "
            f"several labels stand in one cell, pass --separator {separator!r}."
        )


def likely_separator(labels: Iterable[str]) -> str | None:
    """Return what seems to stand between several labels of one cell, if anything.

    Cut there, the labels must be fewer than they are uncut: sets of labels are, names
    that happen to have a comma are not.

    >>> likely_separator(["room", "location", "location; room"])
    ';'
    >>> likely_separator(["food, drinks", "toys, games", "books"])
    """
    names = set(labels)
    for separator in SEPARATORS:
        parts = {part.strip() for name in names for part in name.split(separator)}
        if len(parts - {""}) < len(names) and any(separator in name for name in names):
            return separator
    return None


def folded(label: str) -> str:
    """Return a label without differences in case, spacing and width.

    >>> folded("Log  In") == folded("log in")
    True
    """
    return " ".join(unicodedata.normalize("NFKC", label).casefold().split())


def n_texts(count: int) -> str:
    """Return a number of texts as part of a sentence."""
    return "1 text" if count == 1 else f"{count:,} texts"
