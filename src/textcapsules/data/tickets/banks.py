"""The phrase banks: what tickets are made of, and what training may not see of it.

One TOML file a topic, and `background.toml` for what says nothing about a topic. Every
file has a part `seen`, open to all splits, and a part `unseen`, kept from training: a
third of it is met in dev, the rest in the test sets alone, so that a model chosen on
dev has not met the test's wording either.

A template is a sentence with `{filler}` slots, `{this|that}` choices, `#` for a digit,
and `[...]` round the words that speak for the topic.
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

__all__ = ["Bank", "read_banks"]

Lists = dict[str, tuple[str, ...]]


@dataclass(frozen=True)
class Bank:
    """What one split may use of a file: templates by kind, fillers by slot."""

    name: str
    weight: int  # how often the topic comes up, relative to the others
    templates: Lists
    fillers: Lists


@cache
def read_banks(part: str) -> tuple[Bank, tuple[Bank, ...]]:
    """Return the background and the topics, by name, as `part` may use them.

    Args:
        part: "train", "dev" or "test".
    """
    folder = resources.files("textcapsules.data.tickets") / "phrases"
    files = {
        entry.name: tomllib.loads(entry.read_text(encoding="utf-8"))
        for entry in folder.iterdir()
        if entry.name.endswith(".toml")
    }
    background = _bank(files.pop("background.toml"), {}, part)
    topics = [_bank(values, background.fillers, part) for values in files.values()]
    return background, tuple(sorted(topics, key=lambda bank: bank.name))


def _bank(values: Mapping[str, Any], common: Lists, part: str) -> Bank:
    """Build a bank from a file's values; `common` are the fillers all topics share."""
    seen, unseen = dict(values["seen"]), dict(values["unseen"])
    fillers = _merge(seen.pop("fillers", {}), unseen.pop("fillers", {}), part)
    return Bank(
        name=values.get("name", "background"),
        weight=values.get("weight", 0),
        templates=_merge(seen, unseen, part),
        fillers={**common, **fillers},
    )


def _merge(
    seen: Mapping[str, Sequence[str]], unseen: Mapping[str, Sequence[str]], part: str
) -> Lists:
    """Add to the seen entries of each kind the unseen ones that `part` may use."""
    return {kind: (*seen[kind], *_allowed(unseen[kind], part)) for kind in seen}


def _allowed(unseen: Sequence[str], part: str) -> list[str]:
    """Return the unseen entries open to a split, repeated so that they come up often.

    Dev has half as many as the tests and repeats them twice as often: both are then
    about equally hard, and what is tuned on dev holds for the tests.
    """
    if part == "train":
        return []
    if part == "dev":
        return [entry for i, entry in enumerate(unseen) if i % 3 == 0 for _ in range(4)]
    return [entry for i, entry in enumerate(unseen) if i % 3 for _ in range(2)]
