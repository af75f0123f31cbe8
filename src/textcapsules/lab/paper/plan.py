"""A cell of a table: one fold or seed of one figure, and the run that fills it.

Its options do not name a folder or a device, so that a plan made here and a record made
elsewhere meet by `Cell.key`, a hash of the options that differ from the defaults.
Cells with the same key are one run.

Which cells every table has, and the options of the run behind each.

The ablation's full model is table 1's Capsule-B, so they share runs; and one run on
Reuters is judged on both of its test sets.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import product
from typing import Any

from textcapsules.base.errors import ConfigError
from textcapsules.config import FORMER, FORMER_SECTIONS, PRESETS, RunConfig
from textcapsules.data.catalogue import card
from textcapsules.lab.paper import published
from textcapsules.lab.paper.systems import (
    SYSTEMS,
    TUNED,
    TUNED_ON,
    Options,
    System,
    fits,
    searched,
    system,
)

__all__ = [
    "CORPORA",
    "REUTERS",
    "TABLES",
    "TABLE_1",
    "VECTORS",
    "Cell",
    "Plan",
    "differences",
    "search_corpus",
    "select",
]

VECTORS = "vectors"  # stands for the word vectors, wherever they lie
TABLE_1 = ("mr", "sst2", "subj", "trec", "cr", "ag-news", "sst2-phrases")
REUTERS = ("reuters-multi", "reuters-full")
CORPORA = (*TABLE_1, *REUTERS)
DEFAULTS = RunConfig()
# A run's key is a hash of names too: a renamed section keeps its first name there.
KEY_NAMES = {current: former for former, current in FORMER_SECTIONS.items()}
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
    >>> differences(RunConfig().replace(baseline={"hidden_size": 4}, train=before))
    {'rival.hidden_size': 4}
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
                name = KEY_NAMES.get(part.name, part.name)
                found[f"{name}.{option.name}"] = value
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


# The same for every system; the batch sizes are the paper's.
EPOCHS, PATIENCE = 20, 4
BATCH, LARGE_BATCH = 25, 50
# Of every network; TF-IDF and fastText know no such choice.
PRECISION = "tf32"
# Every system is calibrated on the same documents: unless a table's line says otherwise
# on joined ones alone, both parts whole.
CALIBRATED: Options = {
    "train": {"calibrate_on": "joined", "joined_share": 1.0, "joined_by": "texts"}
}
SINGLE_AND_JOINED = {"calibrate_on": "single+joined", "joined_share": 0.2}
BY_LABEL = {**SINGLE_AND_JOINED, "joined_by": "labels"}
LONG = {"max_tokens": 400}
LARGE = ("ag-news", "sst2-phrases")

EPOCH_BY: dict[str, Options] = {
    "accuracy": {"train": {"select": "accuracy"}},
    "joined": {"train": {"select": "joined"}},
    "margin": {"train": {"select": "accuracy"}, "loss": {"loss": "margin"}},
    "trained-joined": {"train": {"select": "joined", "joined": 1.0}},
    "single+joined": {"train": {"select": "joined", **SINGLE_AND_JOINED}},
    "trained-joined, single+joined": {
        "train": {"select": "joined", "joined": 1.0, **SINGLE_AND_JOINED}
    },
    "by label, 400 tokens": {"text": LONG, "train": {"select": "joined", **BY_LABEL}},
    "trained-joined, by label, 400 tokens": {
        "text": LONG,
        "train": {"select": "joined", "joined": 1.0, **BY_LABEL},
    },
}
ABLATION: dict[str, Options] = {
    "sabour-3": {
        "model": {
            "squash": "sabour",
            "leaky": False,
            "amendment": False,
            "orphan": False,
        }
    },
    "ours-1": {"model": {"iterations": 1}},
    "ours-3": {},
    "ours-5": {"model": {"iterations": 5}},
    "without-leaky_softmax": {"model": {"leaky": False}},
    "without-orphan_category": {"model": {"orphan": False}},
    "without-coefficient_amendment": {"model": {"amendment": False}},
    "sabour-squash": {"model": {"squash": "sabour"}},  # the paper has no such row
}
CURVES = (1, 3, 5)  # iterations of figure 3
# From preset paper to preset best, every step on top of those before it.
LADDER: dict[str, Options] = {
    "preset paper": {},
    "no convolutional capsules": {"model": {"conv_capsules": False}},
    "normalised weights": {"model": {"normalise": "total"}},
    "n-grams side by side": {"model": {"joint": True}},
    "100 filters, 16 capsule types": {"model": {"filters": 100, "capsule_types": 16}},
    "n-grams over the ends": {"model": {"edges": True}},
    "dropout 0.4 on word vectors": {"model": {"dropout": 0.4}},
    "word vectors at a tenth of the rate": {"train": {"vector_rate": 0.1}},
    "rate 0.002, rising and falling": {
        "train": {
            "epochs": None,
            "patience": 0,
            "learning_rate": 2e-3,
            "schedule": "linear",
            "warmup": 0.1,
            "weight_decay": 0.01,
        }
    },
    "n-grams of one to five words: preset best": {
        "text": LONG,  # of these corpora only Reuters has longer texts than 200
        "model": {"ngram_sizes": (1, 2, 3, 4, 5)},
    },
}
LADDER_ON = {  # folds or seeds of each
    "mr": 10,
    "cr": 5,
    "subj": 5,
    "trec": 5,
    "sst2": 5,
    "ag-news": 5,
    "reuters-multi": 5,
    "reuters-full": 5,
}


class Plan:
    """Lists cells: how many folds and seeds, and the settings the search has chosen."""

    def __init__(
        self,
        *,
        folds: int = 10,
        seeds: int = 5,
        chosen: Mapping[tuple[str, str], Options] | None = None,
        adjust: Options | None = None,
    ) -> None:
        """Settle what all cells have in common.

        Args:
            folds: of a corpus without a test set.
            seeds: of a corpus with one.
            chosen: by system and corpus of the search (see `search_corpus`).
            adjust: options for every run, on top of its own.
        """
        self.folds, self.seeds = folds, seeds
        self.chosen, self.adjust = dict(chosen or {}), adjust or {}

    def cells(self, table: str) -> list[Cell]:
        """Return the cells of one table."""
        return list(TABLES[table](self))

    def repeated(
        self,
        table: str,
        entry: System,
        corpus: str,
        setting: str,
        *extra: Options,
        most: int | None = None,
        searching: bool = False,
    ) -> Iterator[Cell]:
        """Return the folds or seeds of one figure, none where the system cannot.

        Args:
            table: whose figure it is.
            entry: the system.
            corpus: one of `CORPORA`.
            setting: which line of the table.
            extra: options of that line.
            most: folds or seeds at the most.
            searching: judge on dev alone.
        """
        if not fits(entry, corpus):
            return
        source = searched(entry)
        where_searched = (source.name, search_corpus(source, corpus))
        chosen = self.chosen.get(where_searched, source.settings[0])
        config = self.config(entry, corpus, chosen, *extra)
        for repeat in range(self.folds if in_folds(corpus) else self.seeds)[:most]:
            where: Options = (
                {"data": {"fold": repeat}}
                if in_folds(corpus)
                else {"train": {"seed": repeat}}
            )
            yield Cell(
                table=table,
                system=entry.name,
                corpus=corpus,
                setting=setting,
                repeat=repeat,
                config=config.replace(**where),
                searching=searching,
            )

    def config(self, entry: System, corpus: str, *extra: Options) -> RunConfig:
        """Return a system's options on a corpus, later ones of `extra` winning."""
        source = "reuters-full" if corpus in REUTERS else corpus
        size = LARGE_BATCH if corpus in LARGE else BATCH
        common: Options = {
            "data": {"source": source},
            "text": {"vectors": VECTORS if entry.vectors else None},
            "train": {"epochs": EPOCHS, "patience": PATIENCE, "batch_size": size},
        }
        if entry.kind != "classic":
            common["train"]["precision"] = PRECISION
        config = RunConfig(preset=entry.preset).replace(**common)
        own = entry.by_corpus.get(corpus, {})
        settled = (PRESETS[entry.preset], entry.options, own, CALIBRATED)
        for options in (*settled, *extra):
            config = config.replace(**options)
        config = config.replace(text={"unknown": "keep"})  # for every system alike
        if config.train.select == "last":  # every epoch is the last one's beginning
            config = config.replace(train={"patience": 0})
        for section, values in self.adjust.items():
            if hasattr(config, section):
                config = config.replace(**{section: values})
        return config


def in_folds(corpus: str) -> bool:
    """Tell whether a corpus has no test set of its own."""
    return card(corpus).layout == "folds"


def search_corpus(entry: System, corpus: str) -> str:
    """Return the corpus on which the settings used on this one are searched."""
    return "reuters-full" if corpus in REUTERS else entry.searched_on


def table1(plan: Plan) -> Iterator[Cell]:
    """Accuracy of every system on the six corpora, and on SST-2 with phrases."""
    for entry in SYSTEMS.values():
        for corpus in TABLE_1:
            yield from plan.repeated("table1", entry, corpus, "")


def table5(plan: Plan) -> Iterator[Cell]:
    """One label in training, several in the test: every way to choose the epoch."""
    for entry in SYSTEMS.values():
        for setting, options in EPOCH_BY.items():
            # Capsules train with the margin loss anyway; TF-IDF and fastText cannot.
            if setting == "margin" and entry.kind != "network":
                continue
            for corpus in REUTERS:
                yield from plan.repeated("table5", entry, corpus, setting, options)


def ablation(plan: Plan) -> Iterator[Cell]:
    """Capsule-B on MR, one thing changed at a time."""
    for setting, options in ABLATION.items():
        entry = system("capsule_b")
        yield from plan.repeated("ablation", entry, "mr", setting, options)


def a4(plan: Plan) -> Iterator[Cell]:
    """Capsule-B on MR with the components of table A.4's fourteen rows."""
    for row in published.components():
        model = {key: row[key] for key in ("iterations", "leaky", "shared", "orphan")}
        options: Options = {"model": model | {"squash": row["squash"]}}
        if row["loss"] != "margin":  # the margin loss is every capsule network's own
            options["loss"] = {"loss": row["loss"].replace("_", "-")}
        entry, setting = system("capsule_b"), str(row["index"])
        yield from plan.repeated("a4", entry, "mr", setting, options)


def figure3(plan: Plan) -> Iterator[Cell]:
    """Capsule-B's training loss on Reuters: every epoch, whatever dev says."""
    for iterations in CURVES:
        options: Options = {
            "model": {"iterations": iterations},
            "train": {"select": "accuracy", "patience": 0},
        }
        entry, setting = system("capsule_b"), str(iterations)
        yield from plan.repeated("figure3", entry, "reuters-multi", setting, options)


def ladder(plan: Plan) -> Iterator[Cell]:
    """From preset paper to preset best, one thing more each step."""
    entry, settled = system("capsule_b_paper"), []
    for step, options in LADDER.items():
        settled.append(options)
        for corpus, most in LADDER_ON.items():
            calibrated = EPOCH_BY["by label, 400 tokens"] if corpus in REUTERS else {}
            every = (*settled, calibrated)
            yield from plan.repeated("ladder", entry, corpus, step, *every, most=most)


def search(plan: Plan) -> Iterator[Cell]:
    """Every setting of every system on a fold or seed, or a few, judged on dev."""
    for entry in SYSTEMS.values():
        if len(entry.settings) == 1:
            continue
        for corpus in (entry.searched_on, "reuters-full"):
            if not fits(entry, corpus):
                continue
            folds = range(entry.search_folds if in_folds(corpus) else 1)
            for (number, options), fold in product(enumerate(entry.settings), folds):
                config = plan.config(entry, corpus, options)
                yield Cell(
                    table="search",
                    system=entry.name,
                    corpus=corpus,
                    setting=str(number),
                    repeat=fold,
                    config=config.replace(data={"fold": fold}),
                    searching=True,
                )


def tuning(plan: Plan) -> Iterator[Cell]:
    """Preset `best` and a CNN searched as widely: every setting, judged on dev."""
    for name, settings in TUNED.items():
        for setting, options in settings.items():
            for corpus, most in TUNED_ON.items():
                yield from plan.repeated(
                    "tuning",
                    system(name),
                    corpus,
                    setting,
                    options,
                    most=most,
                    searching=True,
                )


TABLES = {
    "table1": table1,
    "table5": table5,
    "ablation": ablation,
    "a4": a4,
    "figure3": figure3,
    "ladder": ladder,
    "search": search,
    "tuning": tuning,
}
