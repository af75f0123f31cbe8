"""Progress of a training for people: a bar on a terminal, else one line per epoch."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

__all__ = ["COMPILING", "err", "loading", "percent", "training_bar"]

COMPILING = "textcapsules.compiling"  # the logger that tells of a kernel to compile

err = Console(stderr=True, highlight=False, emoji=False)


def percent(value: float | None) -> str:
    """Return a share as a percentage with one decimal."""
    return "-" if value is None else f"{100 * value:.1f}"


@contextmanager
def loading(*, quiet: bool) -> Iterator[None]:
    """Show on a terminal that the program is being loaded, which takes a moment."""
    if quiet or not err.is_terminal:
        yield
        return
    with err.status("loading"):
        yield


class CompilingLine(logging.Handler):
    """Says once, above the bar, that kernels are being compiled."""

    said = False

    def emit(self, record: logging.LogRecord) -> None:
        """Print the line, for the first kernel alone."""
        if not self.said:
            self.said = True
            err.print("compiling the routing kernels, once on this machine: some 6 s")


@contextmanager
def told_of_compiling() -> Iterator[None]:
    """Print a line if kernels are compiled meanwhile."""
    logger, handler = logging.getLogger(COMPILING), CompilingLine()
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


@contextmanager
def training_bar(*, quiet: bool) -> Iterator[dict[str, Any]]:
    """Yield `on_step`, `on_epoch` and `on_encode` for a training run.

    On a terminal they update a bar with loss, dev score and time left. Elsewhere, each
    epoch is one line, and there is no `on_step`, which would wait for the GPU.
    """
    if quiet or not err.is_terminal:
        silent = {"on_step": None, "on_encode": None}
        with nullcontext() if quiet else told_of_compiling():
            yield {**silent, "on_epoch": None if quiet else epoch_line}
        return
    columns = (
        TextColumn("{task.fields[stage]}"),
        BarColumn(),
        TextColumn("loss {task.fields[loss]}  dev {task.fields[dev]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err, transient=True) as bar, told_of_compiling():
        task = bar.add_task("train", stage="epoch 1", loss="-", dev="-", total=None)

        def on_encode(done: int, total: int) -> None:
            bar.update(task, total=total, completed=done, stage="encoding texts")

        def on_step(step: Any) -> None:
            done = step.epoch * step.n_steps + step.step + 1
            bar.update(
                task,
                total=step.n_epochs * step.n_steps,
                completed=done,
                stage=f"{step.stage} {step.epoch + 1}/{step.n_epochs}",
                loss=f"{step.loss:.4f}",
            )

        def on_epoch(record: dict[str, Any]) -> None:
            bar.update(task, dev=percent(record["dev_score"]))
            epoch_line(record)

        yield {"on_step": on_step, "on_epoch": on_epoch, "on_encode": on_encode}


def epoch_line(record: dict[str, Any]) -> None:
    """Print an epoch on one line of stderr."""
    figures = [f"loss {record['loss']:.4f}"]
    for key in ("dev_accuracy", "dev_exact_match", "dev_micro_f1"):
        if key in record:
            figure = f"{key.replace('_', ' ')} {percent(record[key])}"
            figures.append(figure + in_parts(record, key))
    seconds = record["train_seconds"] + record["dev_seconds"]
    line = f"epoch {record['epoch']}: {', '.join(figures)}, {seconds:.1f} s"
    err.print(line, soft_wrap=True)  # one line, even if the pipe is narrow


def in_parts(record: dict[str, Any], key: str) -> str:
    """Return a figure for each kind of dev text, in brackets, if the record has them.

    >>> in_parts({"f1": 0.5, "f1_single": 0.625, "f1_joined": 0.375}, "f1")
    ' (single 62.5, joined 37.5)'
    """
    kinds = ("single", "joined", "several")
    values = {kind: record.get(f"{key}_{kind}") for kind in kinds}
    parts = [
        f"{kind} {percent(value)}"
        for kind, value in values.items()
        if value is not None
    ]
    return f" ({', '.join(parts)})" if parts else ""
