"""How a training step's time and memory grow with length, classes and batch."""

from collections.abc import Iterator
from typing import Any

import torch

from textcapsules.bench.cases import Case, make_step
from textcapsules.bench.measure import timed
from textcapsules.config import preset
from textcapsules.training.steps import EagerSteps, GraphSteps

__all__ = ["SCALES", "bench_scaling"]

# One size at a time grows; the last needs both at once.
SCALES: dict[str, list[Case]] = {
    "length": [Case(8, n, 4) for n in (50, 200, 1000, 4000)],
    "classes": [Case(8, 60, n) for n in (2, 10, 100, 1000, 10_000)],
    "batch": [Case(n, 60, 4) for n in (1, 8, 64, 256, 1024)],
    "long and many": [Case(4, 4000, 1000)],
}
# The same with what two cores can do in reasonable time.
SMALL: dict[str, list[Case]] = {
    "length": [Case(2, n, 4) for n in (50, 200, 1000)],
    "classes": [Case(2, 60, n) for n in (2, 10, 100, 1000)],
    "batch": [Case(n, 60, 4) for n in (1, 8, 64)],
}


def bench_scaling(
    device: torch.device, *, votes: bool = True, precision: str = "ieee"
) -> Iterator[dict[str, Any]]:
    """Yield a row for every size, with votes where the memory allows, and without."""
    on_gpu = device.type == "cuda"
    for axis, cases in (SCALES if on_gpu else SMALL).items():
        for case in cases:
            config = preset("paper").replace(
                text={"max_tokens": max(case.tokens, 200)},
                model={"embeddings": "static"},
                train={"batch_size": case.batch, "precision": precision},
            )
            ways: list[tuple[str, str, type]] = [
                ("auto", "auto", GraphSteps if on_gpu else EagerSteps)
            ]
            if votes:
                ways.insert(0, ("votes", "votes", EagerSteps))
            for title, backend, kind in ways:
                try:
                    step = make_step(config, case, backend, kind, device)
                    row = timed(title, step, device)
                    del step
                except torch.OutOfMemoryError:
                    row = {"way": title, "ms": "out of memory"}
                yield {"grows": axis, **case._asdict(), **row}
