"""Names of labels that are seldom meant: a missing value's, or one name spelt twice."""

import unicodedata
from collections import Counter, defaultdict
from collections.abc import Sequence

from textcapsules.data.example import Example
from textcapsules.notices import warn

__all__ = ["check_labels"]

MISSING = ("nan", "null", "none", "n/a")  # as other programs write an empty cell


def check_labels(source: str, examples: Sequence[Example]) -> None:
    """Warn of each label that is named as a missing value, or nearly as another."""
    counts = Counter(label for example in examples for label in example.labels)
    alike: dict[str, list[str]] = defaultdict(list)
    for label in sorted(counts):
        alike[folded(label)].append(label)
        if label.casefold() in MISSING:
            warn(
                f"{source}: label {label!r} of {n_texts(counts[label])} is taken as "
                "the name of a class. If it stands for a missing label, empty those "
                "cells and pass --skip-empty."
            )
    for labels in alike.values():
        if len(labels) > 1:
            named = [f"{label!r} ({n_texts(counts[label])})" for label in labels]
            warn(
                f"{source}: labels {', '.join(named[:-1])} and {named[-1]} differ only "
                f"in case or spacing and are taken as {len(labels)} classes. Spell "
                "them alike if they are one."
            )


def folded(label: str) -> str:
    """Return a label without what the eye passes over.

    >>> folded("Log  In") == folded("log in")
    True
    """
    return " ".join(unicodedata.normalize("NFKC", label).casefold().split())


def n_texts(count: int) -> str:
    """Return how many texts, in words."""
    return "1 text" if count == 1 else f"{count:,} texts"
