"""One `reproduce` command: searches, runs what is missing, and writes the tables."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from textcapsules.base.errors import ConfigError, CorpusError
from textcapsules.base.files import file_sha256, write_json, write_text
from textcapsules.base.sums import read_json
from textcapsules.data.split import N_FOLDS
from textcapsules.lab.paper.displays import (
    DISPLAYS,
    check_page,
    display_cell,
    train_display,
    without_amendment,
)
from textcapsules.lab.paper.figures import RecordedFigures
from textcapsules.lab.paper.heads import EVERY_SYSTEM, encoder_name, search_source
from textcapsules.lab.paper.place import QUICK, Place
from textcapsules.lab.paper.plan import (
    CORPORA,
    TABLES,
    Cell,
    Plan,
    search_corpus,
    search_place,
    select,
)
from textcapsules.lab.paper.records import Records, choose, line, read_choices
from textcapsules.lab.paper.runs import commit
from textcapsules.lab.paper.systems import SYSTEMS
from textcapsules.lab.paper.table6 import TABLE6_MARK, TABLE6_PAGE, write_table6
from textcapsules.lab.paper.table_a3 import A3_MARK, A3_PAGE, write_a3
from textcapsules.lab.paper.tables import MARK, plot_losses, render_tables
from textcapsules.lab.paper.workers import OnDone, Outcome, run_here, run_many
from textcapsules.training.prepare import prepare

__all__ = ["Campaign", "Result", "check_tables"]

PAGE, FAILURES, COVERAGE = "TABLES.md", "failures.jsonl", "results/vectors.json"
ALL = ("table1", "table5", "ablation", "a4", "figure3", "ladder", "tuning")
# The tables show records of this many seeds, even if a command asks for fewer.
MOST_SEEDS = 10


class Result(NamedTuple):
    """The runs of a command."""

    cells: int
    already: int  # runs recorded before
    done: int
    failed: list[Outcome]


def check_tables(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the names of tables and of displays; `all` stands for all of them."""
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
    """The work of one command in one folder."""

    def __init__(
        self,
        folder: Path | str,
        *,
        folds: int = 10,
        seeds: int = 5,
        only: Sequence[str] = (),
        encoder: str | None = None,
        quick: bool = False,
        redo_unclean: bool = False,
    ) -> None:
        """Read the records of the folder.

        Args:
            folder: where records and tables are.
            folds: of a corpus without a test set.
            seeds: of a corpus with a test set.
            only: `SYSTEM/CORPUS/SETTING` patterns of the cells to run.
            encoder: the name or folder of the one that the table `encoders` is of.
            quick: try every cell on a few texts.
            redo_unclean: repeat runs whose code was at no commit.
        """
        self.folder = Path(folder)
        self.folds, self.seeds, self.only = folds, seeds, only
        self.encoders = () if encoder is None else (encoder_name(encoder),)
        self.adjust = QUICK if quick else None
        self.records = Records(self.folder / "results")
        self.unclean = self.records.unclean() if redo_unclean else set()
        self.failed: list[Outcome] = []
        check_page(self.folder / PAGE, MARK)

    @property
    def choices(self) -> Path:
        """Return the folder of the settings that searches have chosen."""
        return self.folder / "results" / "search"

    def plan(self) -> Plan:
        """Return the plan with the settings chosen so far."""
        return Plan(
            folds=self.folds,
            seeds=self.seeds,
            chosen=read_choices(self.choices),
            adjust=self.adjust,
            encoders=self.encoders,
        )

    def cells(self, tables: Sequence[str]) -> list[Cell]:
        """Return the cells of some tables that `only` leaves."""
        plan = self.plan()
        cells = [cell for table in tables for cell in plan.cells(table)]
        return select(cells, self.only)

    def displays(
        self, names: Sequence[str], epochs: int | None = None
    ) -> dict[str, Cell]:
        """Return the runs of some displays that `only` leaves, by name."""
        plan = self.plan()
        cells = [display_cell(plan, name, epochs) for name in names]
        return {cell.table: cell for cell in select(cells, self.only)}

    def write_display(self, cell: Cell, place: Place, **watch: Any) -> list[Path]:
        """Train the models of a display, write it, and return its file."""
        classifier, corpus = train_display(cell, place, **watch)
        if cell.table == "table6":
            return write_table6(classifier, corpus.test, self.folder)
        plain, _ = train_display(without_amendment(cell), place, **watch)
        return write_a3(classifier, plain, corpus.test, self.folder)

    def check_displays(self, cells: Sequence[Cell], place: Place) -> None:
        """Raise an error before any training if a display could only fail."""
        self.check(cells, place)
        pages = {"table6": (TABLE6_PAGE, TABLE6_MARK), "a3": (A3_PAGE, A3_MARK)}
        for cell in cells:
            page, mark = pages[cell.table]
            check_page(self.folder / page, mark)

    def unsearched(self, tables: Sequence[str]) -> list[Cell]:
        """Return the cells of searches that must be done before these tables."""
        chosen = read_choices(self.choices)
        needed = set()
        for cell in self.cells(tables):
            source = search_source(EVERY_SYSTEM[cell.system])
            if len(source.settings) > 1:
                corpus = search_corpus(source, cell.corpus)
                place = search_place(corpus, cell.config.text.encoder)
                needed.add((source.name, place))
        return [
            cell
            for cell in self.plan().cells("search")
            if (cell.system, search_place(cell.corpus, cell.config.text.encoder))
            in needed - set(chosen)
        ]

    def missing(self, cells: Sequence[Cell]) -> list[Cell]:
        """Return one cell per run without a record, the longest first.

        Before all others comes one run of every network on every corpus: it compiles
        the kernels that the other folds and seeds use.
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
        place: Place,
        *,
        jobs: int,
        on_done: OnDone,
    ) -> Result:
        """Do the runs that are missing and write their records."""
        left = self.missing(cells)
        self.check(left, place)
        if not self.failed:  # the file is from an earlier command
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
        if search := [cell for cell in cells if cell.table == "search"]:
            keys = {outcome.cell.key for outcome in failed}
            choose(search, self.records, keys, self.choices)
        return Result(len(cells), runs - len(left), done, failed)

    def check(self, cells: Sequence[Cell], place: Place) -> None:
        """Raise an error before the first run if a run could only fail."""
        from textcapsules.data.corpora import available, data_folder
        from textcapsules.model.classifier import pick_device

        pick_device(place.device)
        readers = sorted({cell.system for cell in cells if cell.config.text.vectors})
        if readers and place.vectors is None:
            raise ConfigError(
                f"vectors must be a file of word vectors for {', '.join(readers)}; "
                "got none. Name one with --vectors, or other systems with --only."
            )
        if readers and not Path(place.vectors or "").is_file():
            raise ConfigError(
                f"vectors must be a file of word vectors; got {place.vectors!r}, which "
                "is none."
            )
        self.check_encoder(cells, place)
        corpora = {entry["name"]: entry for entry in available(place.data_dir)}
        for source in dict.fromkeys(cell.config.data.source for cell in cells):
            if not corpora[source]["present"]:
                raise CorpusError(
                    f"data_dir must hold the corpus {source}; got "
                    f"{str(data_folder(place.data_dir))!r} without "
                    f"{corpora[source]['missing'][0]}. Run 'textcapsules data fetch "
                    f"{source}', or name other corpora with --only."
                )

    def check_encoder(self, cells: Sequence[Cell], place: Place) -> None:
        """Refuse an encoder that is not there, or not the one of the records."""
        from textcapsules.text.encoder_files import find_encoder, require_transformers

        names = {cell.config.text.encoder for cell in cells} - {None}
        if not names or place.encoder is None:
            return
        require_transformers()
        files = sorted(find_encoder(place.encoder).glob("*.safetensors"))
        sums = {file.name: file_sha256(file) for file in files}
        for record in self.records.of_encoder(*names):
            if record["vectors"]["sha256"] != sums:
                raise ConfigError(
                    f"encoder must be the one of the records in {self.folder}; got "
                    f"{place.encoder!r} of other weights. Name another folder with "
                    "--out."
                )

    def write_failures(self) -> None:
        """Write the errors of this command's runs."""
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

    def measure_coverage(self, place: Place) -> None:
        """Write which shares of every corpus's words have a vector, and a true one.

        A file of vectors may hold estimates beside true vectors. Records of runs made
        before files marked the true ones lack that share, so it is measured separately.
        """
        entry = SYSTEMS["cnn_static"]  # reads words like every system with vectors
        shares = {
            name: prepare(place.localise(Plan().config(entry, name))).facts["vectors"]
            for name in CORPORA
        }
        write_json(self.folder / COVERAGE, {"commit": commit(), "corpora": shares})

    def write_tables(self) -> list[Path]:
        """Write TABLES.md and the plots from all records, and return the files."""
        plan = Plan(
            folds=N_FOLDS,
            seeds=max(self.seeds, MOST_SEEDS),
            chosen=read_choices(self.choices),
            adjust=self.adjust,
            encoders=self.records.encoders(),
        )
        coverage = self.folder / COVERAGE
        shares = read_json(coverage)["corpora"] if coverage.exists() else {}
        recorded = RecordedFigures(plan, self.records, shares)
        page = self.folder / PAGE
        write_text(page, render_tables(recorded, quick=self.adjust is not None))
        curves = recorded.curves()
        return [page, *(plot_losses(curves, self.folder) if curves else [])]
