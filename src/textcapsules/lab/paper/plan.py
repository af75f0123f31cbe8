"""Which cells every table has, and the options of the run that fills each cell.

A cell is one fold or seed of one figure of a table. `Cell.key` is a hash of the options
of its run that differ from the defaults. It depends on no folder and no device, so that
a record made on another machine is found by it. Cells with the same key share one run:
the full model of the ablation is Capsule-B of table 1, and a run on Reuters is
evaluated on both of its test sets.
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
from textcapsules.lab.paper.heads import (
    ENCODER_CORPORA,
    EVERY_SYSTEM,
    HEADS,
    search_source,
)
from textcapsules.lab.paper.systems import (
    SYSTEMS,
    TUNED,
    TUNED_ON,
    Options,
    TableSystem,
    can_learn,
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
    "search_place",
    "select",
]

VECTORS = "vectors"  # stands for the file of word vectors, wherever it is
TABLE_1 = ("mr", "sst2", "subj", "trec", "cr", "ag-news", "sst2-phrases")
REUTERS = ("reuters-multi", "reuters-full")
CORPORA = (*TABLE_1, *REUTERS)
DEFAULTS = RunConfig()
# A run's key is a hash of names too: a renamed section keeps its first name there.
KEY_NAMES = {current: former for former, current in FORMER_SECTIONS.items()}
# Options that differ between machines or do not change the result: not in the key.
UNKEYED = {
    ("data", "data_dir"),
    ("train", "device"),
    ("train", "checkpoint_seconds"),
    ("train", "refuse"),  # the tables count what is decided without it
}


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One fold or seed of one figure of one table."""

    table: str
    system: str
    corpus: str
    setting: str  # the line of the table, if a system has several
    repeat: int  # the fold, or the seed if the corpus has a test set
    config: RunConfig
    searching: bool = False  # evaluated on dev alone

    @property
    def tests(self) -> tuple[str, ...]:
        """Return the test sets to evaluate on; the Reuters corpora share one run."""
        if self.searching:
            return ()
        return REUTERS if self.corpus in REUTERS else (self.corpus,)

    @cached_property
    def key(self) -> str:
        """Return the name of the run that fills this cell."""
        parts: list[Any] = [differences(self.config), self.tests]
        if EVERY_SYSTEM[self.system].kind == "regression":  # no option says so
            parts.append("regression")
        content = json.dumps(parts, sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    @property
    def cost(self) -> float:
        """Return an estimate of the run's length, to start the longest first."""
        entry = card(self.config.data.source)
        texts = entry.files[entry.train[0]].rows
        longer = 5.0 if self.corpus in REUTERS else 1.0
        epochs = self.config.train.epochs or 12
        epochs = epochs if not self.config.train.patience else 8
        return EVERY_SYSTEM[self.system].cost * texts * longer * epochs


def differences(config: RunConfig) -> dict[str, Any]:
    """Return the options that differ from the defaults, by dotted name.

    An option that a later version adds is not a difference. If its default changes what
    runs do, its former behaviour counts as the default (`FORMER`).

    >>> before = {"calibrate_on": "joined"}
    >>> differences(RunConfig().replace(model={"iterations": 5}, train=before))
    {'model.iterations': 5}
    >>> differences(RunConfig().replace(baseline={"hidden_size": 4}, train=before))
    {'rival.hidden_size': 4}
    """
    differing = {}
    for part in fields(config):
        section, default = getattr(config, part.name), getattr(DEFAULTS, part.name)
        if part.name == "preset":  # the options themselves hold its values
            continue
        for option in fields(section):
            value, place = getattr(section, option.name), (part.name, option.name)
            same = value == FORMER.get(place, getattr(default, option.name))
            if not same and place not in UNKEYED:
                name = KEY_NAMES.get(part.name, part.name)
                differing[f"{name}.{option.name}"] = value
    return differing


def select(cells: Iterable[Cell], only: Sequence[str]) -> list[Cell]:
    """Return the cells that a `SYSTEM/CORPUS/SETTING` names; all without a pattern.

    Each part may be missing or hold `*`: `capsule_b`, `cnn_*/mr`, `*/trec`, and
    `lstm/reuters-full/joined`, whose setting is a line or column of the table.
    """
    wanted = [_parts(pattern) for pattern in only]
    return [
        cell
        for cell in cells
        if not wanted
        or any(
            fnmatchcase(cell.system, system)
            and fnmatchcase(cell.corpus, corpus)
            and fnmatchcase(cell.setting, setting)
            for system, corpus, setting in wanted
        )
    ]


def _parts(pattern: str) -> tuple[str, str, str]:
    system, corpus, setting = (
        part or "*" for part in [*pattern.split("/", 2), "", ""][:3]
    )
    for what, part, known in (
        ("system", system, EVERY_SYSTEM),
        ("corpus", corpus, CORPORA),
    ):
        if not any(fnmatchcase(each, part) for each in known):
            raise ConfigError(
                f"only must be SYSTEM/CORPUS/SETTING with a {what} of "
                f"{', '.join(known)}; got {pattern!r}."
            )
    return system, corpus, setting


# For every system; the batch sizes are the paper's.
EPOCHS, PATIENCE = 20, 4
BATCH, LARGE_BATCH = 25, 50
# For every network; TF-IDF and fastText have no such option.
PRECISION = "tf32"
# Every system is calibrated on the same documents: on joined ones alone, with both
# parts whole, unless a line of a table says otherwise.
VECTOR_SIZE = 300  # of random vectors too

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
    "sabour-squash": {"model": {"squash": "sabour"}},  # not in the paper
}
CURVES = (1, 3, 5)  # iterations in figure 3
# What preset `best` adds to a network, left out of every preset: networks are compared
# as they are, and each record has the figures of both rules for thresholds.
NETWORK_ALONE: Options = {"train": {"word_scores": "none", "thresholds": "one"}}

# What preset `encoder-frozen` adds to the states, left out of the heads on them.
STATES_ALONE: Options = {
    "model": {"piece_size": 0},
    "loss": {"per_branch": False},
}

# From preset paper to preset best; every step adds to those before it.
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
    "n-grams of one to five words": {
        "text": LONG,  # only Reuters has texts longer than 200 tokens
        "model": {"ngram_sizes": (1, 2, 3, 4, 5)},
    },
    "a network of peaks": {"model": {"peaks": True}},
    "a loss per network: preset best": {"loss": {"per_branch": True}},
}
LADDER_ON = {  # folds or seeds per corpus
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
    """The cells of all tables, for some folds, seeds and chosen settings."""

    def __init__(
        self,
        *,
        folds: int = 10,
        seeds: int = 5,
        chosen: Mapping[tuple[str, str], Options] | None = None,
        adjust: Options | None = None,
        encoders: Sequence[str] = (),
    ) -> None:
        """Set what all cells have in common.

        Args:
            folds: of a corpus without a test set.
            seeds: of a corpus with a test set.
            chosen: settings by system and place of the search (see `search_place`).
            adjust: options for every run, on top of its own.
            encoders: names of those that the table `encoders` has.
        """
        self.folds, self.seeds, self.encoders = folds, seeds, tuple(encoders)
        self.chosen, self.adjust = dict(chosen or {}), adjust or {}

    def cells(self, table: str) -> list[Cell]:
        """Return the cells of one table."""
        return list(TABLES[table](self))

    def repeated(
        self,
        table: str,
        entry: TableSystem,
        corpus: str,
        setting: str,
        *extra: Options,
        most: int | None = None,
        searching: bool = False,
        encoder: str | None = None,
    ) -> Iterator[Cell]:
        """Yield the folds or seeds of one figure, none if the system cannot learn it.

        Args:
            table: the table with the figure.
            entry: the system.
            corpus: one of `CORPORA`.
            setting: the line of the table.
            extra: options of that line.
            most: folds or seeds, at most.
            searching: evaluate on dev alone.
            encoder: the name of the one that a head stands on.
        """
        if not can_learn(entry, corpus):
            return
        source = search_source(entry)
        place = search_place(search_corpus(source, corpus), encoder)
        chosen = self.chosen.get((source.name, place), source.settings[0])
        if encoder is None:
            config = self.config(entry, corpus, chosen, *extra)
        else:
            config = self.head_config(entry, corpus, encoder, chosen, *extra)
        for repeat in range(self.folds if in_folds(corpus) else self.seeds)[:most]:
            numbered: Options = (
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
                config=config.replace(**numbered),
                searching=searching,
            )

    def config(self, entry: TableSystem, corpus: str, *extra: Options) -> RunConfig:
        """Return the options of a system on a corpus; later ones of `extra` win."""
        source = "reuters-full" if corpus in REUTERS else corpus
        size = LARGE_BATCH if corpus in LARGE else BATCH
        common: Options = {
            "data": {"source": source},
            "text": {"vectors": VECTORS if entry.vectors else None},
            "train": {"epochs": EPOCHS, "patience": PATIENCE, "batch_size": size},
        }
        if entry.kind != "classic":
            common["train"]["precision"] = PRECISION
        by_corpus = entry.by_corpus.get(corpus, {})
        # As large as the vectors of the file, in every preset.
        size_of_all: Options = {"model": {"embedding_size": VECTOR_SIZE}}
        preset = (PRESETS[entry.preset], size_of_all, NETWORK_ALONE)
        fixed = (*preset, entry.options, by_corpus, CALIBRATED)
        # For every system; nothing is refused, as published.
        for_all: Options = {"text": {"unknown": "keep"}, "train": {"refuse": False}}
        config = self.merged(entry, common, *fixed, *extra, for_all)
        if config.train.select == "last":  # training must reach the last epoch
            config = config.replace(train={"patience": 0})
        return config

    def head_config(
        self, entry: TableSystem, corpus: str, encoder: str, *extra: Options
    ) -> RunConfig:
        """Return the options of a head on an encoder: its preset's, as users run it."""
        source = "reuters-full" if corpus in REUTERS else corpus
        size = LARGE_BATCH if corpus in LARGE else BATCH
        common: Options = {
            "data": {"source": source},
            "text": {"encoder": encoder},
            "train": {"batch_size": size, "precision": PRECISION},
        }
        # Nothing is refused, as in the other tables.
        for_all: Options = {"train": {"refuse": False}}
        by_corpus = entry.by_corpus.get(corpus, {})
        preset = (PRESETS[entry.preset], NETWORK_ALONE, STATES_ALONE)
        fixed = (*preset, common, entry.options)
        return self.merged(entry, *fixed, *extra, by_corpus, for_all)

    def merged(self, entry: TableSystem, *parts: Options) -> RunConfig:
        """Return the options of all parts; later ones win, `adjust` last."""
        merged: Options = {}  # checked once: a plan has thousands of cells
        for options in (*parts, self.adjust):
            for section, values in options.items():
                merged[section] = {**merged.get(section, {}), **values}
        return RunConfig(preset=entry.preset).replace(**merged)


def in_folds(corpus: str) -> bool:
    """Return whether a corpus has no test set, and so is evaluated in folds."""
    return card(corpus).layout == "folds"


def search_corpus(entry: TableSystem, corpus: str) -> str:
    """Return the corpus on which the settings used on this one are searched."""
    if corpus in REUTERS:
        return "reuters-full"
    return corpus if corpus in entry.searched_apart else entry.searched_on


def search_place(corpus: str, encoder: str | None) -> str:
    """Return the name of a search among those of one system.

    >>> search_place("mr", None), search_place("mr", "gte-small")
    ('mr', 'mr.gte-small')
    """
    return corpus if encoder is None else f"{corpus}.{encoder}"


def table1(plan: Plan) -> Iterator[Cell]:
    """Accuracy of every system on the six corpora, and on SST-2 with phrases."""
    for entry in SYSTEMS.values():
        for corpus in TABLE_1:
            yield from plan.repeated("table1", entry, corpus, "")


def table5(plan: Plan) -> Iterator[Cell]:
    """One label in training, several in the test, for every way to choose the epoch."""
    for entry in SYSTEMS.values():
        for setting, options in EPOCH_BY.items():
            # Capsules always train with the margin loss; TF-IDF and fastText cannot.
            if setting == "margin" and entry.kind != "network":
                continue
            for corpus in REUTERS:
                yield from plan.repeated("table5", entry, corpus, setting, options)


def ablation(plan: Plan) -> Iterator[Cell]:
    """Capsule-B on MR with one change per line."""
    for setting, options in ABLATION.items():
        entry = SYSTEMS["capsule_b"]
        yield from plan.repeated("ablation", entry, "mr", setting, options)


def a4(plan: Plan) -> Iterator[Cell]:
    """Capsule-B on MR with the components of table A.4's fourteen rows."""
    for row in published.components():
        model = {key: row[key] for key in ("iterations", "leaky", "shared", "orphan")}
        options: Options = {"model": model | {"squash": row["squash"]}}
        if row["loss"] != "margin":  # which is the default of capsule networks
            options["loss"] = {"loss": row["loss"].replace("_", "-")}
        entry, setting = SYSTEMS["capsule_b"], str(row["index"])
        yield from plan.repeated("a4", entry, "mr", setting, options)


def figure3(plan: Plan) -> Iterator[Cell]:
    """Training loss of Capsule-B on Reuters over all epochs."""
    for iterations in CURVES:
        options: Options = {
            "model": {"iterations": iterations},
            "train": {"select": "accuracy", "patience": 0},
        }
        entry, setting = SYSTEMS["capsule_b"], str(iterations)
        yield from plan.repeated("figure3", entry, "reuters-multi", setting, options)


def ladder(plan: Plan) -> Iterator[Cell]:
    """From preset paper to preset best, one change more at each step."""
    entry, steps = SYSTEMS["capsule_b_paper"], []
    for step, options in LADDER.items():
        steps.append(options)
        for corpus, most in LADDER_ON.items():
            calibrated = EPOCH_BY["by label, 400 tokens"] if corpus in REUTERS else {}
            extra = (*steps, calibrated)
            yield from plan.repeated("ladder", entry, corpus, step, *extra, most=most)


def search(plan: Plan) -> Iterator[Cell]:
    """Every setting of every system on one seed or a few folds, evaluated on dev."""
    systems = [(entry, None) for entry in SYSTEMS.values()]
    systems += list(product(HEADS.values(), plan.encoders))
    for entry, encoder in systems:
        if len(entry.settings) == 1:
            continue
        for corpus in (entry.searched_on, *entry.searched_apart, "reuters-full"):
            if not can_learn(entry, corpus):
                continue
            folds = range(entry.search_folds if in_folds(corpus) else 1)
            for (number, options), fold in product(enumerate(entry.settings), folds):
                if encoder is None:
                    config = plan.config(entry, corpus, options)
                else:
                    config = plan.head_config(entry, corpus, encoder, options)
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
    """Capsule-B and a CNN, searched equally widely: every setting, evaluated on dev."""
    for name, settings in TUNED.items():
        for setting, options in settings.items():
            for corpus, most in TUNED_ON.items():
                yield from plan.repeated(
                    "tuning",
                    SYSTEMS[name],
                    corpus,
                    setting,
                    options,
                    most=most,
                    searching=True,
                )


def encoders(plan: Plan) -> Iterator[Cell]:
    """Heads on pretrained encoders; the encoder is the line of the table."""
    for encoder, entry in product(plan.encoders, HEADS.values()):
        for corpus in ENCODER_CORPORA:
            yield from plan.repeated(
                "encoders", entry, corpus, encoder, encoder=encoder
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
    "encoders": encoders,
}
