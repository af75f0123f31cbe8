"""Fit a system that needs no gradient: one pass, recorded as one epoch."""

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textcapsules.config import RunConfig
from textcapsules.model.builder import gives_several
from textcapsules.model.rivals.classic import ClassicSystem
from textcapsules.training.checkpoint import Best, Progress
from textcapsules.training.loop import with_joined
from textcapsules.training.prepare import Encoded
from textcapsules.training.selection import DevSet

__all__ = ["fit_system"]


def fit_system(
    config: RunConfig, system: ClassicSystem, train: Encoded, dev: DevSet
) -> Progress:
    """Fit on the training texts, joined ones among them if asked for; judge on dev."""
    started = time.perf_counter()
    documents, targets = with_joined(config, train, 0)
    system.fit(documents, targets)
    loss = log_loss(system.scores(documents), targets, several=gives_several(config))
    fitted = time.perf_counter()
    record: dict[str, Any] = {
        "epoch": 1,
        "loss": loss,
        **dev.judge(system),
        "train_seconds": round(fitted - started, 3),
        "dev_seconds": round(time.perf_counter() - fitted, 3),
    }
    return Progress([record], Best(0, record["dev_score"], {}))


def log_loss(scores: NDArray, targets: NDArray, *, several: bool) -> float:
    """Return the mean cross-entropy a text, of each class alone if `several`."""
    likely = np.clip(scores.astype(np.float64), 1e-7, 1 - 1e-7)
    loss = -targets * np.log(likely)
    if several:
        loss -= (1 - targets) * np.log(1 - likely)
    return float(loss.sum(1).mean())
