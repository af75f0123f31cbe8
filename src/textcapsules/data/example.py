"""What a corpus is made of: a text and the names of its labels."""

from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Corpus", "Example"]


class Example(NamedTuple):
    """One text with its labels: one in training, one or more in a multi-label test."""

    text: str
    labels: tuple[str, ...]


class Corpus(NamedTuple):
    """A corpus split for one run; `labels` fixes the order of the classes."""

    name: str
    labels: tuple[str, ...]
    train: Sequence[Example]
    dev: Sequence[Example]
    test: Sequence[Example]
    task: str  # "single-label" or "multi-label": what the test set asks for
    rule: str  # the tokenisation rule that suits it (see text.tokenize)
    facts: dict  # provenance: source, licence, checksums, fold, split seed, remarks
