"""What commands print: tables, a progress bar on a terminal, one JSON line."""

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

__all__ = ["percent", "print_json", "print_table", "say", "training_bar", "work_bar"]

Json = Annotated[bool, typer.Option("--json", help="End with one JSON object.")]

out = Console(highlight=False, emoji=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, emoji=False)


def say(message: str) -> None:
    """Print a line for people, on stdout."""
    out.print(message, markup=False)


def print_json(value: dict[str, Any]) -> None:
    """Print one JSON object on one line, the last of stdout."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")


def print_table(
    title: str, header: Sequence[str], rows: Sequence[Sequence[Any]]
) -> None:
    """Print rows under a header; numbers stand to the right."""
    # `Text`, since labels and file names may hold what rich takes for markup.
    table = Table(title=Text(title), title_justify="left", title_style="bold")
    for place, name in enumerate(header):
        numeric = place > 0 and all(is_number(row[place]) for row in rows)
        table.add_column(Text(name), justify="right" if numeric else "left")
    for row in rows:
        table.add_row(*(Text(str(cell)) for cell in row))
    # A pipe has no width of its own: let the table have what it needs.
    (out if out.is_terminal else Console(highlight=False, width=120)).print(table)


def is_number(cell: Any) -> bool:
    """Tell what stands to the right: numbers, percentages and the lack of one."""
    return isinstance(cell, int | float) or cell == "-" or str(cell)[:1].isdigit()


def percent(value: float | None) -> str:
    """Return a share as a percentage with one decimal."""
    return "-" if value is None else f"{100 * value:.1f}"


@contextmanager
def training_bar(n_epochs: int, *, quiet: bool) -> Iterator[dict[str, Any]]:
    """Yield `on_step` and `on_epoch` for a training run.

    On a terminal they drive a bar with loss, dev score and time left; elsewhere there
    is no `on_step`, so that a GPU is never waited for, and each epoch is one line.
    """
    if quiet or not err.is_terminal:
        yield {"on_step": None, "on_epoch": None if quiet else epoch_line}
        return
    columns = (
        TextColumn("epoch {task.fields[epoch]}/" + str(n_epochs)),
        BarColumn(),
        TextColumn("loss {task.fields[loss]}  dev {task.fields[dev]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task("train", epoch=1, loss="-", dev="-", total=None)

        def on_step(step: Any) -> None:
            done = step.epoch * step.n_steps + step.step + 1
            bar.update(
                task,
                total=n_epochs * step.n_steps,
                completed=done,
                epoch=step.epoch + 1,
                loss=f"{step.loss:.4f}",
            )

        def on_epoch(record: dict[str, Any]) -> None:
            bar.update(task, dev=percent(record["dev_score"]))
            epoch_line(record)

        yield {"on_step": on_step, "on_epoch": on_epoch}


def epoch_line(record: dict[str, Any]) -> None:
    """Print an epoch on one line of stderr."""
    figures = [f"loss {record['loss']:.4f}"]
    for key in ("dev_accuracy", "dev_exact_match", "dev_micro_f1"):
        if key in record:
            figures.append(f"{key.replace('_', ' ')} {percent(record[key])}")
    seconds = record["train_seconds"] + record["dev_seconds"]
    err.print(f"epoch {record['epoch']}: {', '.join(figures)}, {seconds:.1f} s")


@contextmanager
def work_bar(name: str, *, quiet: bool) -> Iterator[Any]:
    """Yield a function to call with the number of items just done."""
    if quiet or not err.is_terminal:
        yield None
        return
    columns = (TextColumn(name), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task(name, total=None)
        yield lambda n: bar.advance(task, n)
