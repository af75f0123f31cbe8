"""Times and memory of a call, and the rates that the machine reaches."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

__all__ = ["MachineRates", "finish_row", "measure_rates", "timed"]

MIB = 2**20


class MachineRates(NamedTuple):
    """Rates that the machine was measured to reach."""

    bytes_per_second: float
    flops: float


def measure_rates(device: torch.device) -> MachineRates:
    """Time a large copy and a large float32 product."""
    big = 2**26 if device.type == "cuda" else 2**23
    source = torch.ones(big, device=device)
    target = torch.empty_like(source)
    copy_seconds = median_seconds(lambda: target.copy_(source), device)
    n = 4096 if device.type == "cuda" else 1024
    a = torch.randn(n, n, device=device)
    product_seconds = median_seconds(lambda: a @ a, device)
    return MachineRates(2 * source.nbytes / copy_seconds, 2 * n**3 / product_seconds)


def median_seconds(function: Callable[[], Any], device: torch.device) -> float:
    """Return the median time of a call."""
    return float(np.median(call_times(function, device)))


def call_times(
    function: Callable[[], Any], device: torch.device, budget: float = 1.0
) -> list[float]:
    """Return the times of calls, as many as fit the budget of seconds (at least 5)."""
    for _ in range(3):
        function()
    times: list[float] = []
    while len(times) < 5 or (sum(times) < budget and len(times) < 200):
        wait(device)
        started = time.perf_counter()
        function()
        wait(device)
        times.append(time.perf_counter() - started)
    return times


def wait(device: torch.device) -> None:
    """Wait until the device has done all work given to it."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def timed(name: str, function: Callable[[], Any], device: torch.device) -> dict:
    """Return a row: median, 20 % and 80 % quantiles in ms, on a GPU peak memory too."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    milliseconds = 1e3 * np.array(call_times(function, device))
    low, median, high = np.quantile(milliseconds, (0.2, 0.5, 0.8))
    times = {"ms": median, "low_ms": low, "high_ms": high}
    row: dict = {"way": name}
    row |= {key: round(float(value), 4) for key, value in times.items()}
    if device.type == "cuda":
        row["peak_mib"] = round(torch.cuda.max_memory_allocated(device) / MIB, 1)
    return row


def finish_row(case: str, row: dict[str, Any], floor: float) -> dict[str, Any]:
    """Add the case, the floor, and the floor's share of the measured time."""
    return {
        "case": case,
        **row,
        "floor_ms": round(1e3 * floor, 4),
        "share": round(1e3 * floor / row["ms"], 3),
    }
