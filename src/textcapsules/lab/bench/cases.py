"""The sizes that are timed, and one training step of them.

The least time of a layer, a step or a prediction: bytes and products counted.

Counts what no way of computing can avoid: every input read and every output written
once, every product of the vote-free form, at the machine's measured rates for float32.
Weights, gradients and Adam's moments are read and written once a step.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from textcapsules.config import ModelConfig, RunConfig
from textcapsules.lab.bench.measure import Ceilings
from textcapsules.model.builder import build_network, ngram_sizes
from textcapsules.model.layers import RoutedLayer
from textcapsules.training.steps import GraphSteps

__all__ = [
    "CASES",
    "LAYERS",
    "N_WORDS",
    "Case",
    "Layer",
    "backend_of",
    "make_step",
    "network_floor",
    "routing_floor",
]

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


FLOAT = 4  # bytes

# Products of (I, D) by (D, J) an iteration: logits and sums; backward the gradients of
# couplings, children (twice) and pulled-back parents.
FORWARD, BACKWARD = 2, 4


def routing_work(
    layer: Layer, size: int, iterations: int, *, train: bool
) -> tuple[float, float]:
    """Return bytes and operations of one routed layer."""
    W = layer.P - layer.K + 1
    passes = 2 if train else 1  # values, and their gradients
    moved = FLOAT * size * layer.B * passes * (layer.P * layer.C + W * layer.J)
    children = layer.B * W * layer.K * layer.C
    products = FORWARD + BACKWARD if train else FORWARD
    return moved, 2 * children * layer.J * size * iterations * products


def routing_floor(
    layer: Layer, size: int, iterations: int, top: Ceilings, *, train: bool = True
) -> float:
    """Return the least seconds of one routed layer, backward pass included."""
    moved, operations = routing_work(layer, size, iterations, train=train)
    return max(moved / top.bytes_per_second, operations / top.flops)


def network_floor(
    config: ModelConfig, case: Case, top: Ceilings, *, train: bool, n_words: int
) -> float:
    """Return the least seconds of a whole step, or of a prediction."""
    V, F, C, D = (
        config.embedding_size,
        config.filters,
        config.capsule_types,
        config.capsule_size,
    )
    trained = config.embeddings != "static"
    words = case.batch * case.tokens
    moved, operations = float(FLOAT * words * V), 0.0
    weights = n_words * V if trained and train else 0
    for K in ngram_sizes(config):
        edge = K - 1 if config.edges else 0
        P = (case.tokens + 2 * edge - K) // config.stride + 1
        # Forward, gradient of the weights, and of the inputs where anything wants it.
        ngram = 2 * case.batch * P * K * V * F * ((2 + trained) if train else 1)
        linear = 2 * case.batch * P * F * C * D * (3 if train else 1)
        operations += ngram + linear
        types, positions = C, P
        weights += K * V * F + F * C * D
        if config.conv_capsules:
            conv = Layer(case.batch, P, C, config.conv_window, config.conv_types)
            work = routing_work(conv, D, config.iterations, train=train)
            moved, operations = moved + work[0], operations + work[1]
            types, positions = config.conv_types, P - config.conv_window + 1
            weights += config.conv_types * D * D
        E = case.classes + config.orphan
        classes = Layer(case.batch, positions, types, positions, E)
        work = routing_work(classes, D, config.iterations, train=train)
        moved, operations = moved + work[0], operations + work[1]
        weights += E * D * D
    # A weight, its gradient and two moments are read, all but the gradient written.
    moved += FLOAT * weights * (7 if train else 1)
    return max(moved / top.bytes_per_second, operations / top.flops)
