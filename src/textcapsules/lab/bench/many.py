"""How many training steps per second several runs do together on one device.

A small run cannot fill a large GPU. Processes fill it if NVIDIA's multi-process service
runs (`nvidia-cuda-mps-control -d`); without it they take turns. Streams of one
process need no service, but share one interpreter.
"""

import os
import time
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from typing import Any

import torch

from textcapsules.config import preset
from textcapsules.lab.bench.cases import BENCH_CASES, make_step
from textcapsules.training.steps import EagerSteps, GraphSteps

__all__ = ["bench_many"]

SECONDS = 2.0  # of stepping together
COUNTS = (1, 2, 4, 8, 14)
SMALL_COUNTS = (1, 2)  # without a GPU


def bench_many(
    device: torch.device, *, precision: str = "ieee"
) -> Iterator[dict[str, Any]]:
    """Yield the steps per second of several runs on MR, as processes and as streams."""
    on_gpu = device.type == "cuda"
    has_service = "CUDA_MPS_PIPE_DIRECTORY" in os.environ
    one_run: float | None = None
    for count in COUNTS if on_gpu else SMALL_COUNTS:
        rates = [processes(count, str(device), precision)]
        if on_gpu:
            rates.append(streams(count, device, precision))
        one_run = one_run or rates[0]
        for way, rate in zip(("processes", "streams"), rates, strict=False):
            yield {
                "way": way,
                "runs": count,
                "service": has_service,
                "steps_per_second": round(rate, 1),
                "times_one_run": round(rate / one_run, 2),
            }


def processes(count: int, device: str, precision: str) -> float:
    """Return the steps per second of `count` processes with one run each."""
    context = get_context("spawn")
    barrier, rates = context.Barrier(count), context.Queue()
    crew = [
        context.Process(target=work, args=(device, precision, barrier, rates))
        for _ in range(count)
    ]
    for process in crew:
        process.start()
    total = sum(rates.get(timeout=300) for _ in crew)
    for process in crew:
        process.join()
    return total


def work(device: str, precision: str, barrier: Any, rates: Any) -> None:
    """Step as fast as possible, all processes at the same time."""
    torch.set_num_threads(1)
    step = ready_step(torch.device(device), precision)
    barrier.wait()
    rates.put(rate_of(step, torch.device(device)))


def streams(count: int, device: torch.device, precision: str) -> float:
    """Return the steps per second of `count` runs on streams of this process."""
    steps = [ready_step(device, precision) for _ in range(count)]
    cuda_streams = [torch.cuda.Stream(device) for _ in steps]

    def all_once() -> None:
        for step, stream in zip(steps, cuda_streams, strict=True):
            with torch.cuda.stream(stream):
                step()

    return count * rate_of(all_once, device)


def ready_step(device: torch.device, precision: str) -> Callable[[], Any]:
    """Return a step of the MR case, captured as a CUDA graph on a GPU."""
    case, kind = BENCH_CASES["mr"], GraphSteps if device.type == "cuda" else EagerSteps
    config = preset("paper").replace(
        train={"batch_size": case.batch, "precision": precision}
    )
    step = make_step(config, case, "auto", kind, device)
    for _ in range(4):
        step()
    return step


def rate_of(function: Callable[[], Any], device: torch.device) -> float:
    """Return the calls per second, measured over `SECONDS`."""
    started, calls = time.perf_counter(), 0
    while time.perf_counter() - started < SECONDS:
        for _ in range(5):
            function()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        calls += 5
    return calls / (time.perf_counter() - started)
