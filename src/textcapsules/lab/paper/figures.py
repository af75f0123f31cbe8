"""Means with their spread, and whether two systems differ by more than chance.

The records of a plan, found by what they stand for in the tables.

Figures as text, and rows of them as Markdown.

Is Capsule-B better than a rival by more than chance?

Both are compared on the folds or seeds that they share: their figures by a paired
t-test, and their answers text by text with McNemar's exact test. Folds have different
texts, so all of them count for the latter; seeds share theirs, so only the first does.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from textcapsules.data.catalogue import card
from textcapsules.lab.paper.plan import CURVES, TABLES, Plan
from textcapsules.lab.paper.record import Record, Records
from textcapsules.lab.paper.systems import SYSTEMS

__all__ = [
    "HEADER",
    "NO_CAPSULES",
    "Board",
    "Mean",
    "Name",
    "against_best",
    "apart",
    "chance",
    "markdown",
    "mcnemar",
    "mean",
    "paired_t",
    "shown",
    "told",
    "unpack",
    "value_of",
    "with_runs",
]


class Mean(NamedTuple):
    """The mean of some runs."""

    value: float
    spread: float  # sample standard deviation, NaN for a single run
    runs: int


def mean(values: Sequence[float]) -> Mean | None:
    """Return the mean of values, None if there are none.

    >>> mean([1.0, 3.0])
    Mean(value=2.0, spread=1.4142135623730951, runs=2)
    """
    if not values:
        return None
    spread = float(np.std(values, ddof=1)) if len(values) > 1 else math.nan
    return Mean(float(np.mean(values)), spread, len(values))


def paired_t(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the p-value of a paired t-test, NaN for fewer than two pairs.

    Where all differences are the same there is no spread to judge by: 1 if they are
    zero, else NaN.
    """
    from scipy.stats import ttest_rel

    gaps = np.subtract(ours, theirs)
    if len(gaps) < 2:
        return math.nan
    if np.ptp(gaps) == 0:
        return 1.0 if gaps[0] == 0 else math.nan
    return float(ttest_rel(ours, theirs).pvalue)  # type: ignore[attr-defined]


def mcnemar(ours: NDArray[np.bool_], theirs: NDArray[np.bool_]) -> float:
    """Return the exact p-value of McNemar's test on which texts were right.

    Only texts that one system has right and the other wrong tell anything; if there
    are none, the p-value is 1.

    >>> mcnemar(np.array([True] * 6 + [False]), np.zeros(7, dtype=bool))
    0.03125
    """
    from scipy.stats import binomtest

    wins, losses = int((ours & ~theirs).sum()), int((theirs & ~ours).sum())
    if wins + losses == 0:
        return 1.0
    return float(binomtest(wins, wins + losses, 0.5).pvalue)


def unpack(right: str, texts: int) -> NDArray[np.bool_]:
    """Return which texts were right from a record's hexadecimal bits.

    >>> unpack("88", 5).tolist()
    [True, False, False, False, True]
    """
    packed = np.frombuffer(bytes.fromhex(right), dtype=np.uint8)
    return np.unpackbits(packed, count=texts).astype(bool)


class Name(NamedTuple):
    """Which figure: all cells that differ only in the fold or seed."""

    table: str
    system: str
    corpus: str
    setting: str = ""


class Board:
    """The figures of a plan that have records."""

    def __init__(
        self,
        plan: Plan,
        records: Records,
        coverage: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        self.coverage = coverage or {}  # of word vectors, by corpus
        self.planned: dict[Name, None] = {}  # in the plan's order
        self.found: dict[Name, dict[int, Record]] = {}
        for table in TABLES:
            if table == "search":  # has files of its own
                continue
            for cell in plan.cells(table):
                name = Name(table, cell.system, cell.corpus, cell.setting)
                self.planned[name] = None
                record = records.get(cell.key)
                if record is not None:
                    self.found.setdefault(name, {})[cell.repeat] = record

    def runs(self, name: Name) -> dict[int, Record]:
        """Return the runs of a figure, by fold or seed."""
        return self.found.get(name, {})

    def mean(self, name: Name, *path: str) -> Mean | None:
        """Return the mean of one figure of the test set."""
        runs = self.runs_with(name, *path).values()
        return mean([value_of(run, name.corpus, path) for run in runs])

    def runs_with(self, name: Name, *path: str) -> dict[int, Record]:
        """Return the runs whose records hold a figure: older ones may lack some."""
        return {
            repeat: run
            for repeat, run in self.runs(name).items()
            if path[0] in run["test"][name.corpus]
        }

    def dev_mean(self, name: Name) -> Mean | None:
        """Return the mean dev score of a figure's runs."""
        runs = self.runs(name).values()
        return mean([run["dev"]["dev_score"] for run in runs])

    def example(self, corpus: str) -> Record | None:
        """Return any run on a corpus, with word vectors if there is one."""
        runs = [
            run
            for name, found in self.found.items()
            if name.corpus == corpus and name.table != "tuning"
            for run in found.values()
        ]
        with_vectors = [run for run in runs if run["vectors"].get("file")]
        return next(iter(with_vectors or runs), None)

    def curves(self) -> dict[int, list[list[float]]]:
        """Return figure 3's losses of every run, by iterations."""
        found = {}
        for iterations in CURVES:
            name = Name("figure3", "capsule_b", "reuters-multi", str(iterations))
            if runs := self.runs(name):
                found[iterations] = [run["losses"] for run in runs.values()]
        return found


def value_of(record: Record, corpus: str, path: Iterable[str]) -> float:
    """Return one figure of a record's test set."""
    value: Any = record["test"][corpus]
    for key in path:
        value = value[key]
    return float(value)


NOTHING = "-"


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table; the first column stands left, the others right."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def shown(found: Mean | None) -> str:
    """Return a mean in percent with its spread.

    >>> shown(Mean(0.8231, 0.0049, 10)), shown(None)
    ('82.3 ± 0.5', '-')
    """
    if found is None:
        return NOTHING
    text = f"{100 * found.value:.1f}"
    return text if math.isnan(found.spread) else f"{text} ± {100 * found.spread:.1f}"


def with_runs(found: Mean | None) -> str:
    """Return a mean with the number of its runs."""
    return NOTHING if found is None else f"{shown(found)} ({found.runs})"


def told(figure: float | None) -> str:
    """Return a published figure."""
    return NOTHING if figure is None else f"{figure:.1f}"


def apart(found: Mean | None, figure: float | None) -> str:
    """Return ours less the published figure, in points.

    >>> apart(Mean(0.8231, 0.0049, 10), 82.0)
    '+0.3'
    """
    if found is None or figure is None:
        return NOTHING
    return f"{100 * found.value - figure:+.1f}"


def chance(p_value: float) -> str:
    """Return a p-value."""
    if math.isnan(p_value):
        return NOTHING
    return "< 0.001" if p_value < 0.001 else f"{p_value:.3f}"


HEADER = ("system", "rival", "difference", "pairs", "p, paired t", "p, McNemar")
NO_CAPSULES = tuple(name for name, entry in SYSTEMS.items() if entry.kind != "capsule")


def against_best(
    board: Board,
    name: Name,
    setting: str,
    path: tuple[str, ...],
    rivals: Sequence[str] = NO_CAPSULES,
) -> list[str] | None:
    """Compare a figure of a system with that of the best of its rivals.

    Args:
        board: the figures.
        name: the system's.
        setting: of the rivals.
        path: from a test set's figures to the one compared.
        rivals: their names.

    Returns:
        The cells under `HEADER`; None where there is nothing to compare.
    """
    ours = board.runs_with(name, *path)
    found = [
        (shared_score(ours, theirs, name.corpus, path), system, theirs)
        for system in rivals
        if (
            theirs := board.runs_with(
                name._replace(system=system, setting=setting), *path
            )
        )
        and ours.keys() & theirs.keys()
    ]
    if not found:
        return None
    _, system, theirs = max(found, key=lambda each: each[0])
    both = sorted(ours.keys() & theirs.keys())
    values = [
        [value_of(runs[repeat], name.corpus, path) for repeat in both]
        for runs in (ours, theirs)
    ]
    gap = 100 * (np.mean(values[0]) - np.mean(values[1]))
    sides = [answers(runs, name.corpus, path[:-1], both) for runs in (ours, theirs)]
    same_texts = sides[0].shape == sides[1].shape
    by_text = mcnemar(*sides) if same_texts else math.nan
    titles = [SYSTEMS[name.system].title, SYSTEMS[system].title]
    p_value = chance(paired_t(*values))
    texts = chance(by_text) if same_texts else NOTHING
    return [*titles, f"{gap:+.1f}", str(len(both)), p_value, texts]


def shared_score(
    ours: dict[int, Record], theirs: dict[int, Record], corpus: str, path: Sequence[str]
) -> tuple[int, float]:
    """Return how many runs are shared, and their mean: more evidence comes first."""
    both = ours.keys() & theirs.keys()
    values = [value_of(theirs[repeat], corpus, path) for repeat in both]
    return len(both), float(np.mean(values))


def answers(
    runs: dict[int, Record], corpus: str, path: Sequence[str], repeats: Sequence[int]
) -> NDArray[np.bool_]:
    """Return which texts a system had right."""
    pieces = []
    for repeat in repeats if card(corpus).layout == "folds" else repeats[:1]:
        test: Any = runs[repeat]["test"][corpus]
        holder = test
        for key in path:
            holder = holder[key]
        pieces.append(unpack(holder["right"], test["texts"]))
    return np.concatenate(pieces)
