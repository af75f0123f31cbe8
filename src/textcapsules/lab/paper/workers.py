"""Many runs at once, in processes that each do one run after another.

A process does many runs, since loading libraries and compiling kernels takes longer
than a small run. If a process dies, only its current run fails, and another process
takes its place. Results come back to the caller's process, which alone writes files.
"""

import gc
import logging
import os
import signal
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

from textcapsules.lab.paper.place import Place
from textcapsules.lab.paper.plan import Cell

__all__ = ["Outcome", "run_here", "run_many"]


class Outcome(NamedTuple):
    """How a run ended: with a record, or with an error."""

    cell: Cell
    record: dict[str, Any] | None
    error: str = ""  # one line
    trace: str = ""


OnDone = Callable[[Outcome], None]


def attempt(cell: Cell, place: Place) -> Outcome:
    """Do one run; an error of any kind becomes its outcome."""
    from textcapsules.lab.paper.runs import execute

    try:
        return Outcome(cell, execute(cell, place))
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        return Outcome(cell, None, reason, traceback.format_exc())
    finally:
        if cell.config.text.encoder is not None:
            gc.collect()  # models of the library refer to themselves: a GPU would fill


def run_here(cells: Sequence[Cell], place: Place, on_done: OnDone) -> None:
    """Do the runs one after another in this process."""
    for cell in cells:
        on_done(attempt(cell, place))


def run_many(
    cells: Sequence[Cell], place: Place, *, jobs: int, on_done: OnDone
) -> None:
    """Do the runs in `jobs` processes, in the order given.

    Args:
        cells: one per run, all with different keys.
        place: the files and the device of the runs.
        jobs: the number of processes.
        on_done: called in this process with every outcome.
    """
    waiting = list(reversed(cells))
    crew = [Worker(place) for _ in range(min(jobs, len(cells)))]
    try:
        for worker in crew:
            worker.give(waiting.pop())
        while busy := {worker.pipe: worker for worker in crew if worker.cell}:
            for pipe in wait(list(busy)):
                worker = busy[pipe]  # type: ignore[index]
                outcome = worker.take()
                if waiting and not worker.process.is_alive():
                    worker.stop()
                    crew[crew.index(worker)] = worker = Worker(place)
                if waiting:
                    worker.give(waiting.pop())
                on_done(outcome)
    finally:
        for worker in crew:
            worker.stop()


class Worker:
    """A process and the pipe to it."""

    def __init__(self, place: Place) -> None:
        context = get_context("spawn")  # a fork would inherit CUDA and locks
        self.pipe, inner = context.Pipe()
        self.process: BaseProcess = context.Process(
            target=work, args=(inner, place), daemon=True
        )
        self.process.start()
        inner.close()  # so that the pipe ends when the process does
        self.cell: Cell | None = None

    def give(self, cell: Cell) -> None:
        """Start a run."""
        self.cell = cell
        with suppress(OSError):  # if it has died, `take` returns the error
            self.pipe.send(cell)

    def take(self) -> Outcome:
        """Return how the run ended."""
        cell, self.cell = self.cell, None
        assert cell is not None  # only busy workers are waited for
        try:
            return self.pipe.recv()
        except (EOFError, OSError):
            self.process.join()
            code = self.process.exitcode
            return Outcome(cell, None, f"its process ended with exit code {code}")

    def stop(self) -> None:
        """End the process, even during a run."""
        self.process.terminate()
        self.process.join()
        self.pipe.close()


def work(pipe: Connection, place: Place) -> None:
    """Do runs in a process until the pipe ends."""
    # The parent handles Ctrl-C: it ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # One thread per process: there are about as many processes as cores.
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    # Warnings about a corpus are not needed by someone who reproduces its figures.
    logging.getLogger("textcapsules").addHandler(logging.NullHandler())
    import torch

    torch.set_num_threads(1)
    try:
        while True:
            pipe.send(attempt(pipe.recv(), place))
    except (EOFError, OSError):
        return  # the parent has ended
