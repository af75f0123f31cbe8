"""Plan, search, run what is missing, and write the tables."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from textcapsules.base.errors import ConfigError, CorpusError, WriteError
from textcapsules.base.files import write_text
from textcapsules.data.split import N_FOLDS
from textcapsules.lab.paper.displays import (
    DISPLAYS,
    check_a3,
    check_table6,
    display_cell,
    train_display,
    without_amendment,
    write_a3,
    write_table6,
)
from textcapsules.lab.paper.figures import Board
from textcapsules.lab.paper.plan import TABLES, Cell, Plan, search_corpus, select
from textcapsules.lab.paper.quick import QUICK
from textcapsules.lab.paper.record import Records, choose, line, read_choices
from textcapsules.lab.paper.runs import measure_coverage, read_coverage
from textcapsules.lab.paper.systems import SYSTEMS, searched
from textcapsules.lab.paper.tables import MARK, plot_losses, render_tables
from textcapsules.lab.paper.workers import Outcome, run_here, run_many

__all__ = ["Campaign", "Result", "check_tables"]

PAGE, FAILURES = "TABLES.md", "failures.jsonl"
ALL = ("table1", "table5", "ablation", "a4", "figure3", "ladder", "tuning")
# Seeds that the tables look for, however many this command asks for.
MOST_SEEDS = 10


class Result(NamedTuple):
    """What a command has done."""

    cells: int
    already: int  # runs recorded before
    done: int
    failed: list[Outcome]


def check_tables(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the tables and the displays asked for, `all` spelled out."""
    wanted: list[str] = []
    for name in names:
        if name != "all" and name not in (*TABLES, *DISPLAYS):
            raise ConfigError(
                f"table must be one of {', '.join([*TABLES, *DISPLAYS])} or all; "
                f"got {name!r}."
            )
        wanted += [*ALL, *DISPLAYS] if name == "all" else [name]
    ordered = dict.fromkeys(wanted)
    return (
        [name for name in ordered if name in TABLES],
        [name for name in ordered if name in DISPLAYS],
    )


class Campaign:
    """One command's work in one folder."""

    def __init__(
        self,
        folder: Path | str,
        *,
        folds: int = 10,
        seeds: int = 5,
        only: Sequence[str] = (),
        quick: bool = False,
        redo_unclean: bool = False,
    ) -> None:
        """Read what is there.

        Args:
            folder: of records and tables.
            folds: of a corpus without a test set.
            seeds: of a corpus with one.
            only: `SYSTEM/CORPUS` patterns of the cells to run.
            quick: try every cell on a few texts.
            redo_unclean: do runs again whose code was at no commit.
        """
        self.folder = Path(folder)
        self.folds, self.seeds, self.only = folds, seeds, only
        self.adjust = QUICK if quick else None
        self.records = Records(self.folder / "results")
        self.unclean = self.records.unclean() if redo_unclean else set()
        self.failed: list[Outcome] = []
        self.check_page()

    @property
    def choices(self) -> Path:
        """Return the folder of the search's choices."""
        return self.folder / "results" / "search"

    def plan(self) -> Plan:
        """Return the plan with what the search has chosen so far."""
        return Plan(
            folds=self.folds,
            seeds=self.seeds,
            chosen=read_choices(self.choices),
            adjust=self.adjust,
        )

    def cells(self, tables: Sequence[str]) -> list[Cell]:
        """Return the cells asked for."""
        plan = self.plan()
        cells = [cell for table in tables for cell in plan.cells(table)]
        return select(cells, self.only)

    def displays(
        self, names: Sequence[str], epochs: int | None = None
    ) -> dict[str, Cell]:
        """Return the displays asked for, and the run behind each."""
        plan = self.plan()
        cells = [display_cell(plan, name, epochs) for name in names]
        return {cell.table: cell for cell in select(cells, self.only)}

    def write_display(self, cell: Cell, place: Any, **watch: Any) -> list[Path]:
        """Train a display's models, write the display, and return its file."""
        classifier, corpus = train_display(cell, place, **watch)
        if cell.table == "table6":
            return write_table6(classifier, corpus.test, self.folder)
        plain, _ = train_display(without_amendment(cell), place, **watch)
        return write_a3(classifier, plain, corpus.test, self.folder)

    def check_displays(self, cells: Sequence[Cell], place: Any) -> None:
        """Refuse what could only fail, before the first display's training."""
        self.check(cells, place)
        for cell in cells:
            (check_table6 if cell.table == "table6" else check_a3)(self.folder)

    def unsearched(self, tables: Sequence[str]) -> list[Cell]:
        """Return the search's cells that these tables wait for."""
        chosen = read_choices(self.choices)
        needed = {
            (source.name, search_corpus(source, cell.corpus))
            for cell in self.cells(tables)
            if len((source := searched(SYSTEMS[cell.system])).settings) > 1
        } - set(chosen)
        return [
            cell
            for cell in self.plan().cells("search")
            if (cell.system, cell.corpus) in needed
        ]

    def missing(self, cells: Sequence[Cell]) -> list[Cell]:
        """Return one cell for every run that has no record, the longest first.

        Before all others goes one run of every network on every corpus: it compiles
        the kernels that its other folds and seeds then find ready.
        """
        runs: dict[str, Cell] = {}
        for cell in cells:
            runs.setdefault(cell.key, cell)
        left = [
            cell
            for key, cell in runs.items()
            if key not in self.records or key in self.unclean
        ]
        left.sort(key=lambda cell: -cell.cost)
        first: dict[Any, Cell] = {}
        for cell in left:
            first.setdefault((cell.config.data.source, cell.config.model), cell)
        ahead = {cell.key for cell in first.values()}
        return sorted(left, key=lambda cell: cell.key not in ahead)

    def run(
        self,
        cells: Sequence[Cell],
        place: Any,
        *,
        jobs: int,
        on_done: Callable[[Outcome], None],
    ) -> Result:
        """Do the runs that are missing and keep their records."""
        left = self.missing(cells)
        self.check(left, place)
        if not self.failed:  # what is left is an earlier command's
            (self.folder / FAILURES).unlink(missing_ok=True)
        failed: list[Outcome] = []

        def keep(outcome: Outcome) -> None:
            if outcome.record is not None:
                self.records.add(outcome.record)
                self.unclean.discard(outcome.cell.key)
            else:
                failed.append(outcome)
                self.failed.append(outcome)
                self.write_failures()
            on_done(outcome)

        if jobs > 1 and len(left) > 1:
            run_many(left, place, jobs=jobs, on_done=keep)
        else:
            run_here(left, place, keep)
        runs = len({cell.key for cell in cells})
        done = len(left) - len(failed)
        if searched := [cell for cell in cells if cell.table == "search"]:
            keys = {outcome.cell.key for outcome in failed}
            choose(searched, self.records, keys, self.choices)
        return Result(len(cells), runs - len(left), done, failed)

    def check(self, cells: Sequence[Cell], place: Any) -> None:
        """Refuse what could only fail, before the first run."""
        from textcapsules.data.corpora import available, data_folder
        from textcapsules.model.classifier import pick_device

        pick_device(place.device)
        needing = sorted({cell.system for cell in cells if cell.config.text.vectors})
        if needing and place.vectors is None:
            raise ConfigError(
                f"vectors must be a file of word vectors for {', '.join(needing)}; "
                "got none. Name one with --vectors, or other systems with --only."
            )
        if needing and not Path(place.vectors).is_file():
            raise ConfigError(
                f"vectors must be a file of word vectors; got {place.vectors!r}, which "
                "is none."
            )
        there = {entry["name"]: entry for entry in available(place.data_dir)}
        for source in dict.fromkeys(cell.config.data.source for cell in cells):
            if not there[source]["present"]:
                raise CorpusError(
                    f"data_dir must hold the corpus {source}; got "
                    f"{str(data_folder(place.data_dir))!r} without "
                    f"{there[source]['missing'][0]}. Run 'textcapsules data fetch "
                    f"{source}', or name other corpora with --only."
                )

    def check_page(self) -> None:
        """Refuse to replace a page that is not ours."""
        page = self.folder / PAGE
        if page.exists() and MARK not in page.read_text(errors="replace")[:500]:
            raise WriteError(
                f"{page} must be a page of tables to be replaced; got another file. "
                "Name another folder with --out."
            )

    def write_failures(self) -> None:
        """Write down what went wrong in this command's runs."""
        rows = [
            {
                "key": outcome.cell.key,
                "system": outcome.cell.system,
                "corpus": outcome.cell.corpus,
                "setting": outcome.cell.setting,
                "repeat": outcome.cell.repeat,
                "error": outcome.error,
                "trace": outcome.trace,
            }
            for outcome in self.failed
        ]
        write_text(self.folder / FAILURES, "".join(map(line, rows)))

    def measure_coverage(self, place: Any) -> None:
        """Measure how many words of the corpora have a vector."""
        measure_coverage(place, self.folder / "results")

    def write_tables(self) -> list[Path]:
        """Write TABLES.md and the plots from all records, and return the files."""
        plan = Plan(
            folds=N_FOLDS,
            seeds=max(self.seeds, MOST_SEEDS),
            chosen=read_choices(self.choices),
            adjust=self.adjust,
        )
        board = Board(plan, self.records, read_coverage(self.folder / "results"))
        page = self.folder / PAGE
        write_text(page, render_tables(board, quick=self.adjust is not None))
        curves = board.curves()
        return [page, *(plot_losses(curves, self.folder) if curves else [])]
