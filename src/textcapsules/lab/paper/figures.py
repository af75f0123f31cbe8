"""From records to figures: means with their spread, comparisons, and their text.

Two systems are compared on the folds or seeds that both have: their figures with a
paired t-test, and their answers text by text with McNemar's exact test. Folds have
different texts, so McNemar's test counts all of them; seeds have the same texts, so it
counts the first alone.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from textcapsules.data.catalogue import card
from textcapsules.lab.paper.heads import EVERY_SYSTEM
from textcapsules.lab.paper.plan import CURVES, TABLES, Plan
from textcapsules.lab.paper.records import Record, Records
from textcapsules.lab.paper.systems import SYSTEMS

__all__ = [
    "BASELINES",
    "COMPARISON_HEADER",
    "FigureName",
    "Mean",
    "RecordedFigures",
    "compare_with_best",
    "format_difference",
    "format_mean",
    "format_p_value",
    "format_published",
    "format_with_runs",
    "markdown",
    "mcnemar",
    "mean",
    "paired_t",
    "unpack",
    "value_of",
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

    If all differences are the same, there is no spread: 1 if they are zero, else NaN.
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

    It counts the texts that one system has right and the other wrong; if there are
    none, the p-value is 1.

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


class FigureName(NamedTuple):
    """What names a figure: it is the mean of the cells that differ only in `repeat`."""

    table: str
    system: str
    corpus: str
    setting: str = ""


class RecordedFigures:
    """The figures of a plan that have records."""

    def __init__(
        self,
        plan: Plan,
        records: Records,
        coverage: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        self.coverage = coverage or {}  # of word vectors, by corpus
        self.encoders = plan.encoders
        self.planned: dict[FigureName, None] = {}  # in the plan's order
        self.records: dict[FigureName, dict[int, Record]] = {}  # by fold or seed
        for table in TABLES:
            if table == "search":  # no table shows it
                continue
            for cell in plan.cells(table):
                name = FigureName(table, cell.system, cell.corpus, cell.setting)
                self.planned[name] = None
                record = records.get(cell.key)
                if record is not None:
                    self.records.setdefault(name, {})[cell.repeat] = record

    def runs(self, name: FigureName) -> dict[int, Record]:
        """Return the runs of a figure, by fold or seed."""
        return self.records.get(name, {})

    def mean(self, name: FigureName, *path: str) -> Mean | None:
        """Return the mean of one figure of the test set."""
        runs = self.runs_with(name, *path).values()
        return mean([value_of(run, name.corpus, path) for run in runs])

    def runs_with(self, name: FigureName, *path: str) -> dict[int, Record]:
        """Return the runs whose records hold a figure; older records lack some."""
        return {
            repeat: run
            for repeat, run in self.runs(name).items()
            if path[0] in run["test"][name.corpus]
        }

    def dev_mean(self, name: FigureName) -> Mean | None:
        """Return the mean dev score of a figure's runs."""
        runs = self.runs(name).values()
        return mean([run["dev"]["dev_score"] for run in runs])

    def example(self, corpus: str) -> Record | None:
        """Return one run on a corpus, with word vectors if there is such a run."""
        runs = [
            run
            for name, by_repeat in self.records.items()
            if name.corpus == corpus and name.table != "tuning"
            for run in by_repeat.values()
        ]
        with_vectors = [run for run in runs if run["vectors"].get("file")]
        return next(iter(with_vectors or runs), None)

    def curves(self) -> dict[int, list[list[float]]]:
        """Return the losses of every run of figure 3, by iterations."""
        curves = {}
        for iterations in CURVES:
            name = FigureName("figure3", "capsule_b", "reuters-multi", str(iterations))
            if runs := self.runs(name):
                curves[iterations] = [run["losses"] for run in runs.values()]
        return curves


def value_of(record: Record, corpus: str, path: Iterable[str]) -> float:
    """Return one figure of a record's test set."""
    value: Any = record["test"][corpus]
    for key in path:
        value = value[key]
    return float(value)


DASH = "-"  # no record, or not published


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table; the first column is aligned left, the others right."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def format_mean(figure: Mean | None) -> str:
    """Return a mean in percent with its spread.

    >>> format_mean(Mean(0.8231, 0.0049, 10)), format_mean(None)
    ('82.3 ± 0.5', '-')
    """
    if figure is None:
        return DASH
    text = f"{100 * figure.value:.1f}"
    return text if math.isnan(figure.spread) else f"{text} ± {100 * figure.spread:.1f}"


def format_with_runs(figure: Mean | None) -> str:
    """Return a mean with the number of its runs."""
    return DASH if figure is None else f"{format_mean(figure)} ({figure.runs})"


def format_published(figure: float | None) -> str:
    """Return a published figure as text."""
    return DASH if figure is None else f"{figure:.1f}"


def format_difference(ours: Mean | None, published: float | None) -> str:
    """Return our figure less the published one, in points.

    >>> format_difference(Mean(0.8231, 0.0049, 10), 82.0)
    '+0.3'
    """
    if ours is None or published is None:
        return DASH
    return f"{100 * ours.value - published:+.1f}"


def format_p_value(p_value: float) -> str:
    """Return a p-value as text."""
    if math.isnan(p_value):
        return DASH
    return "< 0.001" if p_value < 0.001 else f"{p_value:.3f}"


COMPARISON_HEADER = (
    "system",
    "compared with",
    "difference",
    "pairs",
    "p, paired t",
    "p, McNemar",
)
# Alone: capsules with words are compared with networks with words.
BASELINES = tuple(
    name
    for name, entry in SYSTEMS.items()
    if entry.kind != "capsule" and not name.endswith("_words")
)


def compare_with_best(
    recorded: RecordedFigures,
    name: FigureName,
    setting: str,
    path: tuple[str, ...],
    others: Sequence[str] = BASELINES,
) -> list[str] | None:
    """Compare a figure of a system with that of the best of some others.

    Args:
        recorded: the figures that have records.
        name: the system's figure.
        setting: the line of the table of the other systems.
        path: the keys of the compared figure within those of a test set.
        others: the names of the other systems.

    Returns:
        The cells under `COMPARISON_HEADER`; None if there is nothing to compare.
    """
    ours = recorded.runs_with(name, *path)
    candidates = []
    for system in others:
        theirs = recorded.runs_with(
            name._replace(system=system, setting=setting), *path
        )
        if ours.keys() & theirs.keys():
            score = shared_score(ours, theirs, name.corpus, path)
            candidates.append((score, system, theirs))
    if not candidates:
        return None
    _, system, theirs = max(candidates, key=lambda each: each[0])
    both = sorted(ours.keys() & theirs.keys())
    values = [
        [value_of(runs[repeat], name.corpus, path) for repeat in both]
        for runs in (ours, theirs)
    ]
    gap = 100 * (np.mean(values[0]) - np.mean(values[1]))
    sides = [answers(runs, name.corpus, path[:-1], both) for runs in (ours, theirs)]
    same_texts = sides[0].shape == sides[1].shape
    titles = [EVERY_SYSTEM[name.system].title, EVERY_SYSTEM[system].title]
    p_values = [paired_t(*values), mcnemar(*sides) if same_texts else math.nan]
    return [*titles, f"{gap:+.1f}", str(len(both)), *map(format_p_value, p_values)]


def shared_score(
    ours: dict[int, Record], theirs: dict[int, Record], corpus: str, path: Sequence[str]
) -> tuple[int, float]:
    """Return the number of shared runs, then their mean: more runs rank higher."""
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
        figures = test
        for key in path:
            figures = figures[key]
        pieces.append(unpack(figures["right"], test["texts"]))
    return np.concatenate(pieces)
