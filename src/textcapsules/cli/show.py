"""How commands print: lines, tables, a progress bar on a terminal, one JSON line."""

import json
import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from textcapsules.base.errors import collected_warnings
from textcapsules.base.progress import err, loading, percent, training_bar

__all__ = [
    "err",
    "folder_name",
    "loading",
    "percent",
    "print_json",
    "print_table",
    "print_warnings",
    "say",
    "training_bar",
    "work_bar",
]

out = Console(highlight=False, emoji=False, soft_wrap=True)


def say(message: str) -> None:
    """Print a line for people, on stdout."""
    out.print(message, markup=False)


def print_json(value: dict[str, Any]) -> None:
    """Print one JSON object on one line, the last of stdout, with any warnings."""
    if warnings := collected_warnings():
        value = {"warnings": warnings, **value}
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")


class Stderr(logging.Handler):
    """Prints log records on stderr, above a progress bar if there is one."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one record."""
        line = f"textcapsules: {record.levelname.lower()}: {self.format(record)}"
        err.print(line, markup=False, soft_wrap=True)


@contextmanager
def print_warnings() -> Iterator[None]:
    """Print the warnings of the package on stderr."""
    logger, handler = logging.getLogger("textcapsules"), Stderr(logging.WARNING)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def print_table(
    title: str, header: Sequence[str], rows: Sequence[Sequence[Any]]
) -> None:
    """Print rows under a header, numbers aligned to the right."""
    # `Text`, since rich would read "[red]" in a label or a file name as markup.
    table = Table(title=Text(title), title_justify="left", title_style="bold")
    for place, name in enumerate(header):
        numeric = place > 0 and all(is_number(row[place]) for row in rows)
        table.add_column(Text(name), justify="right" if numeric else "left")
    for row in rows:
        table.add_row(*(Text(str(cell)) for cell in row))
    # A pipe has no width: let the table have what it needs.
    (out if out.is_terminal else Console(highlight=False, width=120)).print(table)


def is_number(cell: Any) -> bool:
    """Tell whether a cell is a number, a percentage, or a dash in its place."""
    return isinstance(cell, int | float) or cell == "-" or str(cell)[:1].isdigit()


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


def folder_name(folder: Path | str) -> str:
    """Return the name of a model's folder, with its parent's where it says little.

    A link keeps its own name.

    >>> folder_name("runs/demo/model"), folder_name("runs/tickets/")
    ('demo/model', 'tickets')
    """
    path = Path(folder)
    path = path.resolve() if path.name in ("", "..") else path.absolute()
    return path.name if path.name != "model" else f"{path.parent.name}/{path.name}"
