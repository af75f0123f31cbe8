import logging
import threading
from concurrent.futures import CancelledError, ThreadPoolExecutor

import pytest

from textcapsules.deploy.service.batching import Batcher, QueueFullError

SECRET = "a text that no log may hold"


class Held:
    """Work that upper-cases texts, and can be held in the middle."""

    def __init__(self, *, is_open: bool = True) -> None:
        self.batches: list[tuple[str, list[str]]] = []
        self.entered, self.open = threading.Semaphore(0), threading.Event()
        if is_open:
            self.open.set()

    def __call__(self, key: str, texts: list[str]) -> list[str]:
        self.batches.append((key, texts))
        self.entered.release()
        assert self.open.wait(30)
        if "poison" in texts:
            raise ValueError(SECRET)
        return [f"{key} {text.upper()}" for text in texts]


@pytest.fixture
def held():
    return Held(is_open=False)


def started(work, **options):
    batcher = Batcher(work, **{"queue": 100, "batch": 8, **options})
    batcher.start()
    return batcher


def test_results_come_back_in_order():
    batcher = started(Held())
    jobs = [batcher.submit("a", [f"x{n}", f"y{n}"]) for n in range(20)]
    for n, job in enumerate(jobs):
        assert job.result(30) == [f"a X{n}", f"a Y{n}"]
    batcher.stop()


def test_what_gathers_while_the_model_works_is_one_batch(held):
    batcher = started(held)
    first = batcher.submit("a", ["one"])
    held.entered.acquire()
    later = [batcher.submit("a", [text]) for text in ("two", "three", "four")]
    held.open.set()
    assert [job.result(30) for job in (first, *later)] == [
        ["a ONE"],
        ["a TWO"],
        ["a THREE"],
        ["a FOUR"],
    ]
    assert held.batches == [("a", ["one"]), ("a", ["two", "three", "four"])]
    batcher.stop()


def test_batches_keep_to_one_key_and_to_their_size(held):
    batcher = started(held, batch=3)
    batcher.submit("a", ["held"])
    held.entered.acquire()
    batcher.submit("a", ["1", "2"])
    batcher.submit("b", ["3"])
    batcher.submit("a", ["4", "5"])  # does not fit behind 1 and 2
    batcher.submit("a", ["6"])
    batcher.submit("b", ["7", "8", "9", "10"])  # larger than a batch: one by itself
    held.open.set()
    batcher.stop()
    assert held.batches[1:] == [
        ("a", ["1", "2", "6"]),
        ("b", ["3"]),
        ("a", ["4", "5"]),
        ("b", ["7", "8", "9", "10"]),
    ]


def test_past_the_queue_a_job_is_refused_and_the_others_are_kept(held):
    batcher = started(held, queue=3)
    first = batcher.submit("a", ["running"])
    held.entered.acquire()
    kept = batcher.submit("a", ["1", "2"])
    with pytest.raises(QueueFullError) as refusal:
        batcher.submit("a", ["3", "4"])
    assert refusal.value.retry_after >= 1
    last = batcher.submit("a", ["5"])
    assert batcher.waiting == 3
    held.open.set()
    assert [job.result(30) for job in (first, kept, last)] == [
        ["a RUNNING"],
        ["a 1", "a 2"],
        ["a 5"],
    ]
    assert batcher.waiting == 0
    batcher.stop()


def test_stop_finishes_what_was_accepted_and_takes_nothing_more(held):
    batcher = started(held, batch=1)
    jobs = [batcher.submit("a", [str(n)]) for n in range(5)]
    held.entered.acquire()
    stopping = threading.Thread(target=batcher.stop)
    stopping.start()
    while batcher.is_ready:
        pass
    with pytest.raises(QueueFullError):
        batcher.submit("a", ["late"])
    held.open.set()
    stopping.join(30)
    assert [job.result(0) for job in jobs] == [[f"a {n}"] for n in range(5)]


def test_a_job_nobody_waits_for_is_not_worked_on(held):
    batcher = started(held)
    batcher.submit("a", ["running"])
    held.entered.acquire()
    unwanted = batcher.submit("a", ["unwanted"])
    assert unwanted.cancel()
    held.open.set()
    batcher.stop()
    assert held.batches == [("a", ["running"])]
    with pytest.raises(CancelledError):
        unwanted.result(0)


def test_one_spoilt_job_does_not_take_the_batch_with_it(held, caplog):
    batcher = started(held)
    batcher.submit("a", ["running"])
    held.entered.acquire()
    jobs = [batcher.submit("a", [text]) for text in ("good", "poison", "fine")]
    held.open.set()
    with caplog.at_level(logging.DEBUG):
        assert jobs[0].result(30) == ["a GOOD"]
        assert jobs[2].result(30) == ["a FINE"]
        with pytest.raises(ValueError, match=SECRET):
            jobs[1].result(30)
        batcher.stop()
    assert "ValueError" in caplog.text
    assert "in __call__" in caplog.text  # where, but not what
    assert SECRET not in caplog.text


def test_a_batch_that_is_not_full_waits_for_more_if_told_to():
    work = Held()
    batcher = started(work, batch=2, batch_wait=60.0)
    jobs = [batcher.submit("a", [text]) for text in "xy"]
    assert [job.result(30) for job in jobs] == [["a X"], ["a Y"]]
    batcher.submit("a", ["last"])
    batcher.stop()  # nothing more can come, so it waits no longer
    assert work.batches == [("a", ["x", "y"]), ("a", ["last"])]


def test_many_threads_lose_nothing():
    batcher = started(Held(), queue=50, batch=7)

    def ask(n: int) -> str | None:
        try:
            return batcher.submit("ab"[n % 2], [str(n)]).result(30)[0]
        except QueueFullError:
            return None

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(ask, range(2000)))
    batcher.stop()
    for n, answer in enumerate(answers):  # 16 threads cannot fill a queue of 50
        assert answer == f"{'ab'[n % 2]} {n}"
