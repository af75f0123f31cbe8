"""`textcapsules reproduce`."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from textcapsules.base.errors import ConfigError
from textcapsules.cli.options import DataDir, Device, Json
from textcapsules.cli.show import err, print_json, print_table, say, training_bar

__all__ = ["reproduce"]


def reproduce(
    table: Annotated[
        list[str],
        typer.Argument(
            help="Tables to fill: table1, table5, ablation, a4, figure3, ladder, "
            "tuning, table6, a3, search or all; encoders: heads on an encoder."
        ),
    ],
    data_dir: DataDir = None,
    vectors: Annotated[str | None, typer.Option(help="File of word vectors.")] = None,
    encoder: Annotated[
        str | None,
        typer.Option(
            help="Pretrained encoder of the table encoders: a folder, a name of the "
            "hub, or all-MiniLM-L6-v2."
        ),
    ] = None,
    device: Device = "auto",
    folds: Annotated[
        int,
        typer.Option(min=1, max=10, help="Folds per corpus that has no test texts."),
    ] = 10,
    seeds: Annotated[
        int, typer.Option(min=1, help="Seeds per corpus that has test texts.")
    ] = 5,
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="Fill only these cells, as SYSTEM/CORPUS/SETTING with * for any text "
            "and parts left out for all; may be repeated."
        ),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="Runs at the same time; by default 2, or 8 on a GPU."),
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(min=1, help="Maximum epochs of the models of table6 and a3."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder of records and tables. [dim]\\[default: reproduction][/]"
        ),
    ] = None,
    search: Annotated[
        bool,
        typer.Option(
            "--search/--no-search", help="Search the settings on dev texts first."
        ),
    ] = True,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Try every cell on a few texts, in minutes."),
    ] = False,
    redo_unclean: Annotated[
        bool,
        typer.Option(
            "--redo-unclean",
            help="Repeat the runs that were made with uncommitted code.",
        ),
    ] = False,
    plan: Annotated[
        bool, typer.Option("--plan", help="Print what would run, and stop.")
    ] = False,
    tables_only: Annotated[
        bool,
        typer.Option(
            "--tables-only",
            help="Write the tables without running anything; with --vectors, first "
            "count the words of each corpus that have a vector.",
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Fill the paper's tables: do the runs without a record, then write TABLES.md.

    table6 (with A.1 and A.2) and a3 show explanations: they train models and write
    displays/table6.html, which holds sentences of Reuters, and A3.md.

    textcapsules reproduce table1 --data-dir corpora --vectors w2v.npz

    textcapsules reproduce a3 table6 --data-dir corpora --vectors w2v.npz

    textcapsules reproduce table5 --only 'capsule_b' --only 'cnn_*' --seeds 1

    textcapsules reproduce encoders --encoder all-MiniLM-L6-v2 --data-dir corpora

    textcapsules reproduce all --quick
    """
    if plan and tables_only:
        raise ConfigError("plan must not go with tables_only; got both. Choose one.")
    from textcapsules.lab.paper.campaign import Campaign, check_tables
    from textcapsules.lab.paper.place import open_place

    tables, displays = check_tables(table)
    check_encoder(tables, encoder, tables_only)
    campaign = Campaign(
        out or Path("runs/reproduction-quick" if quick else "reproduction"),
        folds=1 if quick else folds,
        seeds=1 if quick else seeds,
        only=only or (),
        encoder=encoder,
        quick=quick,
        redo_unclean=redo_unclean,
    )
    shown = campaign.displays(displays, epochs)
    # The tables of encoders that have records need none to be named.
    needs_cells = not (tables_only and encoder is None and "encoders" in tables)
    if needs_cells and not campaign.cells(tables) and not shown:
        raise ConfigError(
            f"only must leave cells of {', '.join([*tables, *displays])}; got "
            f"{', '.join(only or ())}, which leaves none."
        )
    if plan:
        show_plan(campaign, tables, list(shown.values()), search and not quick, json)
        return
    written: list[Path] = []
    result: dict[str, Any] = {
        "out": str(campaign.folder),
        "tables": [*tables, *shown],
    }
    if tables_only:
        if vectors is not None:
            with open_place(False, data_dir, vectors, "cpu") as place:
                campaign.check(campaign.cells(["table1", "table5"]), place)
                campaign.measure_coverage(place)
        written += campaign.write_tables()
    else:
        with open_place(quick, data_dir, vectors, device, encoder) as place:
            campaign.check_displays(list(shown.values()), place)
            if tables:
                searching = search and not quick
                result |= do_runs(campaign, tables, place, jobs, searching, json)
                written += campaign.write_tables()
            for cell in shown.values():
                written += do_display(campaign, cell, place, json)
    result["written"] = [str(path) for path in written]
    say("wrote " + ", ".join(result["written"]))
    if json:
        print_json(result)


def check_encoder(tables: list[str], encoder: str | None, tables_only: bool) -> None:
    """Refuse the table of an encoder without one, and an encoder without its table."""
    if "encoders" in tables and encoder is None and not tables_only:
        raise ConfigError(
            "encoder must be given for the table encoders; got none. Name one with "
            "--encoder, such as all-MiniLM-L6-v2."
        )
    if encoder is not None and not {"encoders", "search"} & set(tables):
        raise ConfigError(
            f"encoder must go with the table encoders; got {encoder!r} for "
            f"{', '.join(tables) or 'a display'}. Leave out --encoder."
        )


def do_display(campaign: Any, cell: Any, place: Any, json: bool) -> list[Path]:
    """Train the models of a display and write it."""
    with keeps_records(campaign), training_bar(quiet=json) as watch:
        written = campaign.write_display(cell, place, **watch)
    if cell.table == "table6":
        say(
            f"{written[0]} holds sentences of the corpus, which is not ours to "
            "publish: keep it out of git (the project ignores reproduction/displays/)."
        )
    return written


def show_plan(
    campaign: Any, tables: list[str], shown: list[Any], search: bool, json: bool
) -> None:
    """Print how many cells there are, and how many runs are still to do."""
    rows = []
    waiting = campaign.unsearched(tables) if search else []
    parts = {"search": waiting} if waiting else {}
    for table in tables:
        parts[table] = campaign.cells([table])
    parts |= {cell.table: [cell] for cell in shown}
    everything = [cell for cells in parts.values() for cell in cells]
    for table, cells in parts.items():
        groups: dict[tuple[str, str], list[Any]] = {}
        for cell in cells:
            groups.setdefault((cell.system, cell.corpus), []).append(cell)
        rows += [
            [table, *names, len(group), len(campaign.missing(group))]
            for names, group in groups.items()
        ]
    header = ["table", "system", "corpus", "cells", "missing runs"]
    left = len(campaign.missing(everything))
    print_table(f"{left} runs to do", header, rows)
    if json:
        plan = [dict(zip(header, row, strict=True)) for row in rows]
        print_json({"runs_to_do": left, "cells": len(everything), "plan": plan})


def do_runs(
    campaign: Any,
    tables: list[str],
    place: Any,
    jobs: int | None,
    search: bool,
    json: bool,
) -> dict[str, Any]:
    """Search where it is needed, then do the tables' runs; return what happened."""
    from textcapsules.model.classifier import pick_device

    if jobs is None:
        jobs = 8 if pick_device(place.device).type == "cuda" else 2
    counts = {"already": 0, "done": 0, "failed": 0}
    stages = [lambda: campaign.unsearched(tables)] if search else []
    for cells_of in [*stages, lambda: campaign.cells(tables)]:
        cells = cells_of()  # the tables' settings are known once the search is done
        left = campaign.missing(cells)
        with keeps_records(campaign), runs_bar(left, quiet=json) as on_done:
            result = campaign.run(cells, place, jobs=jobs, on_done=on_done)
        counts["already"] += result.already
        counts["done"] += result.done
        counts["failed"] += len(result.failed)
    say(
        f"{counts['done']} runs done, {counts['already']} recorded before, "
        f"{counts['failed']} failed."
    )
    return counts


@contextmanager
def keeps_records(campaign: Any) -> Iterator[None]:
    """Say after Ctrl-C that finished runs are kept."""
    try:
        yield
    except KeyboardInterrupt as error:
        err.print(
            "textcapsules: interrupted. Finished runs are kept in "
            f"{campaign.folder / 'results'}; the same command does the rest.",
            markup=False,
            soft_wrap=True,
        )
        raise typer.Exit(130) from error


@contextmanager
def runs_bar(cells: list[Any], *, quiet: bool) -> Iterator[Callable[[Any], None]]:
    """Yield a function to call after every run: a bar on a terminal, else a line."""
    done = 0

    def on_done(outcome: Any) -> None:
        nonlocal done
        done += 1
        if outcome.record is None or not (quiet or err.is_terminal):
            run_line(outcome, f"{done}/{len(cells)}")

    if quiet or not err.is_terminal or not cells:
        yield on_done
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[runs]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err, transient=True) as bar:
        # Time left follows the runs' expected length, not their number.
        total = sum(cell.cost for cell in cells)
        task = bar.add_task("runs", total=total, runs=f"0/{len(cells)}")

        def advance(outcome: Any) -> None:
            on_done(outcome)
            runs = f"{done}/{len(cells)}"
            bar.update(task, advance=outcome.cell.cost, runs=runs)

        yield advance


def run_line(outcome: Any, place: str) -> None:
    """Print a run on one line of stderr."""
    cell = outcome.cell
    name = f"{cell.system}/{cell.corpus} {cell.setting} {cell.repeat}".replace(
        "  ", " "
    )
    if outcome.record is None:
        text = f"{place} {name}: failed: {outcome.error}"
    else:
        text = f"{place} {name}: {outcome.record['seconds']:.1f} s"
    err.print(text, markup=False, soft_wrap=True)
