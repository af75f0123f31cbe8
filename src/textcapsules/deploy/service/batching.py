"""One thread that runs the model, fed by a bounded queue.

Requests hand in jobs of a few texts. While the model reads one batch, others wait; the
next batch takes what has gathered, oldest first, so that batches grow with the load and
a single request does not wait. (A batch can wait a few milliseconds for more texts;
four clients on two busy cores gained nothing by it.) Every accepted job is answered,
even if other jobs of its batch fail, and even while the service stops.
"""

import logging
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from math import ceil
from typing import Any, NamedTuple

__all__ = ["Batcher", "QueueFullError", "log_fault"]

logger = logging.getLogger(__name__)

# Returns one result per text, for the texts of jobs with one key.
Work = Callable[[Any, list[str]], Sequence[Any]]


class QueueFullError(Exception):
    """More is waiting than the service may keep."""

    def __init__(self, retry_after: int) -> None:
        super().__init__(f"try again in {retry_after} s")
        self.retry_after = retry_after  # seconds until the queue should be shorter


class Job(NamedTuple):
    """Some texts of one request, and where their results go."""

    key: Hashable  # only jobs with the same key share a batch
    texts: Sequence[str]
    results: Future[list[Any]]


class Batcher:
    """A queue of jobs and the thread that runs them.

    Args:
        work: returns one result per text, in their order.
        queue: how many texts may wait.
        batch: how many texts are read at once; a larger job is one batch.
        batch_wait: seconds to wait for more while a batch is not full.
        on_start: called once in the thread.
        on_batch: called with the number of texts and the seconds of each batch.
    """

    def __init__(
        self,
        work: Work,
        *,
        queue: int,
        batch: int,
        batch_wait: float = 0.0,
        on_start: Callable[[], None] = lambda: None,
        on_batch: Callable[[int, float], None] = lambda texts, seconds: None,
    ) -> None:
        self._work, self._on_start, self._on_batch = work, on_start, on_batch
        self._queue, self._batch, self._batch_wait = queue, batch, batch_wait
        self._jobs: deque[Job] = deque()
        self._waiting = 0  # texts in `_jobs`
        self._stopping = False
        self._changed = threading.Condition()
        self._seconds_per_text = 0.0
        # A second Ctrl-C ends the program at once: the thread must not hold it up.
        self._thread = threading.Thread(target=self._run, name="model", daemon=True)

    @property
    def waiting(self) -> int:
        """How many texts wait to be read."""
        return self._waiting

    @property
    def is_ready(self) -> bool:
        """Whether jobs are accepted and run."""
        return self._thread.is_alive() and not self._stopping

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def submit(self, key: Hashable, texts: Sequence[str]) -> Future[list[Any]]:
        """Accept a job, or raise `QueueFullError`."""
        job = Job(key, texts, Future())
        with self._changed:
            if self._stopping or self._waiting + len(texts) > self._queue:
                raise QueueFullError(self._retry_after())
            self._jobs.append(job)
            self._waiting += len(texts)
            self._changed.notify()
        return job.results

    def stop(self) -> None:
        """Accept nothing more, finish what was accepted, and end the thread."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join()

    def _retry_after(self) -> int:
        return min(60, max(1, ceil(self._waiting * self._seconds_per_text)))

    def _run(self) -> None:
        self._on_start()
        while jobs := self._next_batch():
            started = time.perf_counter()
            answer(self._work, [job for job in jobs if wanted(job)])
            seconds = time.perf_counter() - started
            texts = sum(len(job.texts) for job in jobs)
            self._seconds_per_text += 0.2 * (seconds / texts - self._seconds_per_text)
            self._on_batch(texts, seconds)

    def _next_batch(self) -> list[Job]:
        """Wait for jobs and take the oldest with others of its key; [] to stop."""
        with self._changed:
            self._changed.wait_for(lambda: self._jobs or self._stopping)
            if self._jobs and self._batch_wait:
                self._changed.wait_for(
                    lambda: self._waiting >= self._batch or self._stopping,
                    self._batch_wait,
                )
            taken: list[Job] = []
            kept: deque[Job] = deque()
            room = self._batch
            for job in self._jobs:
                fits = not taken or (job.key == taken[0].key and len(job.texts) <= room)
                (taken if fits else kept).append(job)
                room -= len(job.texts) if fits else 0
            self._jobs = kept
            self._waiting -= sum(len(job.texts) for job in taken)
            return taken


def wanted(job: Job) -> bool:
    """Tell whether a client still waits for the job, and mark it as running."""
    return job.results.set_running_or_notify_cancel()


def answer(work: Work, jobs: list[Job]) -> None:
    """Run some jobs as one batch; if it fails, run each alone: one may be at fault."""
    if not jobs:
        return
    try:
        results = work(jobs[0].key, [text for job in jobs for text in job.texts])
    except Exception as error:
        log_fault("a batch failed", error)
        if len(jobs) == 1:
            jobs[0].results.set_exception(error)
        else:
            for job in jobs:
                answer(work, [job])
        return
    place = 0
    for job in jobs:
        job.results.set_result(list(results[place : place + len(job.texts)]))
        place += len(job.texts)


def log_fault(what: str, error: BaseException) -> None:
    """Log where an error arose, but not its message: that may quote a text."""
    frames = "".join(traceback.format_tb(error.__traceback__))
    logger.error("%s: %s\n%s", what, type(error).__name__, frames)
