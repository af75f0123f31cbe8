"""A cell of a table: one fold or seed of one figure, and the run that fills it.

Its options do not name a folder or a device, so that a plan made here and a record made
elsewhere meet by `Cell.key`, a hash of the options that differ from the defaults.
Cells with the same key are one run.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

from textcapsules.config import FORMER, RunConfig
from textcapsules.data.catalogue import card
from textcapsules.errors import ConfigError
from textcapsules.reproduce.systems import SYSTEMS

__all__ = ["CORPORA", "REUTERS", "TABLE_1", "VECTORS", "Cell", "differences", "select"]

VECTORS = "vectors"  # stands for the word vectors, wherever they lie
TABLE_1 = ("mr", "sst2", "subj", "trec", "cr", "ag-news", "sst2-phrases")
REUTERS = ("reuters-multi", "reuters-full")
CORPORA = (*TABLE_1, *REUTERS)
DEFAULTS = RunConfig()
# Not of the method, or another on every machine: no part of a run's key.
UNKEYED = {
    ("data", "data_dir"),
    ("train", "device"),
    ("train", "checkpoint_seconds"),
}


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One fold or seed of one figure of one table."""

    table: str
    system: str
    corpus: str
    setting: str  # which line of the table, where a system has several
    repeat: int  # the fold, or the seed where the corpus has a test set
    config: RunConfig
    searching: bool = False  # judged on dev alone

    @property
    def tests(self) -> tuple[str, ...]:
        """Return the test sets to judge on; the Reuters corpora share one run."""
        if self.searching:
            return ()
        return REUTERS if self.corpus in REUTERS else (self.corpus,)

    @cached_property
    def key(self) -> str:
        """Return the name of the run that fills this cell."""
        content = json.dumps([differences(self.config), self.tests], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    @property
    def cost(self) -> float:
        """Return a guess of the run's length, to start the longest first."""
        entry = card(self.config.data.source)
        texts = entry.files[entry.train[0]].rows
        longer = 5.0 if self.corpus in REUTERS else 1.0
        epochs = self.config.train.epochs or 12
        epochs = epochs if not self.config.train.patience else 8
        return SYSTEMS[self.system].cost * texts * longer * epochs


def differences(config: RunConfig) -> dict[str, Any]:
    """Return the options that differ from the defaults, by dotted name.

    A default that a later version adds does not change what a run is; where it is not
    what runs did before, what they did counts as the default (`FORMER`).

    >>> before = {"calibrate_on": "joined"}
    >>> differences(RunConfig().replace(model={"iterations": 5}, train=before))
    {'model.iterations': 5}
    """
    found = {}
    for part in fields(config):
        section, default = getattr(config, part.name), getattr(DEFAULTS, part.name)
        if part.name == "preset":  # what it stands for is in the options themselves
            continue
        for option in fields(section):
            value, place = getattr(section, option.name), (part.name, option.name)
            same = value == FORMER.get(place, getattr(default, option.name))
            if not same and place not in UNKEYED:
                found[f"{part.name}.{option.name}"] = value
    return found


def select(cells: Iterable[Cell], only: Sequence[str]) -> list[Cell]:
    """Return the cells that a `SYSTEM/CORPUS` pattern names; no pattern: all.

    Either half may be left out or hold `*`: `capsule_b`, `cnn_*/mr`, `*/trec`.
    """
    pairs = [_halves(pattern) for pattern in only]
    return [
        cell
        for cell in cells
        if not pairs
        or any(
            fnmatchcase(cell.system, name) and fnmatchcase(cell.corpus, corpus)
            for name, corpus in pairs
        )
    ]


def _halves(pattern: str) -> tuple[str, str]:
    name, _, corpus = pattern.partition("/")
    name, corpus = name or "*", corpus or "*"
    for what, half, known in (("system", name, SYSTEMS), ("corpus", corpus, CORPORA)):
        if not any(fnmatchcase(each, half) for each in known):
            raise ConfigError(
                f"only must be SYSTEM/CORPUS with a {what} of {', '.join(known)}; "
                f"got {pattern!r}."
            )
    return name, corpus
