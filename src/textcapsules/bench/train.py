"""Time a whole training step of Capsule-B as the paper has it."""

from collections.abc import Iterator
from typing import Any

import torch

from textcapsules.bench.cases import CASES, N_WORDS, make_step
from textcapsules.bench.floors import network_floor
from textcapsules.bench.measure import finish_row, measure_ceilings, timed
from textcapsules.config import preset
from textcapsules.training.steps import EagerSteps, GraphSteps

__all__ = ["bench_train"]


def bench_train(
    device: torch.device,
    *,
    embeddings: str = "static",
    votes: bool = True,
    compiled: bool = False,
    precision: str = "ieee",
    cases: tuple[str, ...] = ("mr", "ag", "reuters"),
) -> Iterator[dict[str, Any]]:
    """Yield a row for every case and every way to run the step."""
    top = measure_ceilings(device)
    for name in cases:
        case = CASES[name]
        config = preset("paper").replace(
            model={"embeddings": embeddings},
            train={"batch_size": case.batch, "precision": precision},
        )
        floor = network_floor(config.model, case, top, train=True, n_words=N_WORDS)
        ways: list[tuple[str, str, type, bool]] = [
            ("vote-free", "vote-free", EagerSteps, False),
            ("auto", "auto", EagerSteps, False),
        ]
        if votes:
            ways.insert(0, ("votes", "votes", EagerSteps, False))
        if compiled:
            ways.append(("torch.compile", "vote-free", EagerSteps, True))
        if device.type == "cuda":
            ways += [
                ("vote-free, CUDA graph", "vote-free", GraphSteps, False),
                ("auto, CUDA graph", "auto", GraphSteps, False),
            ]
        for title, backend, kind, by_compiler in ways:
            step = make_step(config, case, backend, kind, device, compiled=by_compiler)
            row = finish_row(name, timed(title, step, device), floor)
            yield {"embeddings": embeddings, "precision": precision, **row}
            del step
