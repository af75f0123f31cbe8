"""The sizes that are timed, and one training step of them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from textcapsules.config import RunConfig
from textcapsules.model.builder import build_network
from textcapsules.model.layers import RoutedLayer
from textcapsules.training.steps import GraphSteps

__all__ = ["CASES", "LAYERS", "N_WORDS", "Case", "Layer", "backend_of", "make_step"]

N_WORDS = 20_000


class Layer(NamedTuple):
    """One routed layer's sizes: texts, positions, types, window, parents."""

    B: int
    P: int
    C: int
    K: int
    J: int


class Case(NamedTuple):
    """A training step's sizes: texts, tokens, classes."""

    batch: int
    tokens: int
    classes: int


# The paper's sizes: batch 25 (AG's news 50), 3-grams, K2 = 3, C = 32, D = 16.
LAYERS = {
    "mr conv": Layer(25, 54, 32, 3, 16),
    "mr classes": Layer(25, 52, 16, 52, 3),
    "ag conv": Layer(50, 58, 32, 3, 16),
    "reuters conv": Layer(25, 198, 32, 3, 16),
    "reuters classes": Layer(25, 196, 16, 196, 9),
}
CASES = {
    "mr": Case(25, 56, 2),
    "ag": Case(50, 60, 4),
    "reuters": Case(25, 200, 8),
}


@contextmanager
def backend_of(network: nn.Module, backend: str) -> Iterator[None]:
    """Make every routed layer of a network use one backend."""
    layers = [m for m in network.modules() if isinstance(m, RoutedLayer)]
    before = [layer.backend for layer in layers]
    for layer in layers:
        layer.backend = backend
    yield
    for layer, name in zip(layers, before, strict=True):
        layer.backend = name


def make_step(
    config: RunConfig,
    case: Case,
    backend: str,
    kind: type,
    device: torch.device,
    *,
    compiled: bool = False,
) -> Callable[[], Any]:
    """Return one training step on random texts, ready to be called again and again."""
    torch.manual_seed(0)
    network: Any = build_network(
        config.model,
        n_words=N_WORDS,
        n_classes=case.classes,
        max_tokens=max(case.tokens, 200),
    ).to(device)
    for layer in network.modules():
        if isinstance(layer, RoutedLayer):
            layer.backend = backend
    if compiled:
        network.compile()
    steps = kind(config, network, device)
    rng = np.random.default_rng(0)
    documents = [
        rng.integers(2, N_WORDS, case.tokens).astype(np.int32)
        for _ in range(case.batch)
    ]
    targets = np.eye(case.classes, dtype=np.float32)[
        rng.integers(0, case.classes, case.batch)
    ]
    rows = [np.arange(case.batch)]
    network.train()
    if isinstance(steps, GraphSteps):
        steps.load(documents, targets, 0)
        chosen = torch.arange(case.batch, device=device)
        return lambda: steps.step(chosen, steps.ids.shape[1], 0)

    def step() -> Tensor:
        (loss,) = steps.run(documents, targets, rows, 0)
        return loss

    return step
