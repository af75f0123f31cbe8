"""The records of a plan, found by what they stand for in the tables."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from textcapsules.reproduce.plan import CURVES, TABLES, Plan
from textcapsules.reproduce.record import Record, Records
from textcapsules.reproduce.statistics import Mean, mean

__all__ = ["Board", "Name", "value_of"]


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
