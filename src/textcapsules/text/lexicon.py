"""Sentiment words, negators and intensifiers of English, from VADER's published lists.

VADER (Hutto and Gilbert 2014) is an optional dependency. Its module is read as a file
and not imported: the import would load a library for web requests.
"""

import ast
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from textcapsules.base.errors import TextCapsulesError

__all__ = [
    "INTENSIFIER",
    "NEGATIVE",
    "NEGATOR",
    "NEUTRAL",
    "POSITIVE",
    "word_classes",
]

NEUTRAL, POSITIVE, NEGATIVE, NEGATOR, INTENSIFIER = range(5)


class Lexicon(NamedTuple):
    """The lists, in lower case."""

    valence: dict[str, float]
    negators: frozenset[str]
    intensifiers: frozenset[str]

    def word_class(self, word: str) -> int:
        """Return a word's class; negators and intensifiers are not sentiment words."""
        word = word.lower()
        if word in self.negators or "n't" in word:  # as VADER has it
            return NEGATOR
        if word in self.intensifiers:
            return INTENSIFIER
        valence = self.valence.get(word, 0)
        return POSITIVE if valence > 0 else NEGATIVE if valence < 0 else NEUTRAL


def word_classes(words: Sequence[str]) -> NDArray[np.int8]:
    """Return NEUTRAL, POSITIVE, NEGATIVE, NEGATOR or INTENSIFIER for every word."""
    lexicon = read_lexicon()
    return np.array([lexicon.word_class(word) for word in words], np.int8)


def read_lexicon() -> Lexicon:
    """Read the lists from the installed package."""
    spec = find_spec("vaderSentiment")
    if spec is None or not spec.submodule_search_locations:
        raise TextCapsulesError(
            "vaderSentiment must be installed to know sentiment words; got none. "
            "Run `pip install 'textcapsules[baselines]'`."
        )
    folder = Path(spec.submodule_search_locations[0])
    rows = (folder / "vader_lexicon.txt").read_text(encoding="utf-8").splitlines()
    pairs = (row.split("\t")[:2] for row in rows if row.strip())
    lists = read_lists((folder / "vaderSentiment.py").read_text(encoding="utf-8"))
    return Lexicon(
        {word.lower(): float(value) for word, value in pairs},
        frozenset(lists["NEGATE"]),
        frozenset(lists["BOOSTER_DICT"]),
    )


def read_lists(source: str) -> dict[str, list[str]]:
    """Return the words of every list, and the keys of every dictionary, in a module."""
    lists = {}
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.Assign) and isinstance(
            statement.targets[0], ast.Name
        ):
            value = statement.value
            if isinstance(value, ast.List):
                lists[statement.targets[0].id] = strings(value.elts)
            elif isinstance(value, ast.Dict):
                lists[statement.targets[0].id] = strings(value.keys)
    return lists


def strings(nodes: Iterable[ast.AST | None]) -> list[str]:
    """Return the values of those expressions that are constant strings."""
    constants = (node.value for node in nodes if isinstance(node, ast.Constant))
    return [value for value in constants if isinstance(value, str)]
