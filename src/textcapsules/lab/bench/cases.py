"""The sizes that are timed, a training step of such a size, and the least time of it.

The least time, or floor, counts what no way of computing can avoid: every input is read
and every output written once, and every product of the vote-free form is computed, at
the machine's measured rates for float32. Weights, gradients and Adam's moments are read
and written once per step.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from textcapsules.config import ModelConfig, RunConfig
from textcapsules.lab.bench.measure import MachineRates
from textcapsules.model.builder import build_network, ngram_sizes
from textcapsules.model.layers import RoutedLayer, edge_width
from textcapsules.training.steps import GraphSteps

__all__ = [
    "BENCH_CASES",
    "BENCH_LAYERS",
    "N_WORDS",
    "BenchCase",
    "BenchLayer",
    "make_step",
    "network_floor",
    "routing_floor",
    "set_backend",
]

N_WORDS = 20_000


class BenchLayer(NamedTuple):
    """One routed layer's sizes: texts, positions, types, window, parents."""

    B: int
    P: int
    C: int
    K: int
    J: int


class BenchCase(NamedTuple):
    """A training step's sizes: texts, tokens, classes."""

    batch: int
    tokens: int
    classes: int


# The paper's sizes: batch 25 (AG's news 50), 3-grams, K2 = 3, C = 32, D = 16.
BENCH_LAYERS = {
    "mr conv": BenchLayer(25, 54, 32, 3, 16),
    "mr classes": BenchLayer(25, 52, 16, 52, 3),
    "ag conv": BenchLayer(50, 58, 32, 3, 16),
    "reuters conv": BenchLayer(25, 198, 32, 3, 16),
    "reuters classes": BenchLayer(25, 196, 16, 196, 9),
}
BENCH_CASES = {
    "mr": BenchCase(25, 56, 2),
    "ag": BenchCase(50, 60, 4),
    "reuters": BenchCase(25, 200, 8),
}


def set_backend(network: nn.Module, backend: str) -> None:
    """Make every routed layer of a network use one backend."""
    for layer in network.modules():
        if isinstance(layer, RoutedLayer):
            layer.backend = backend


def make_step(
    config: RunConfig,
    case: BenchCase,
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
    set_backend(network, backend)
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
        all_rows = torch.arange(case.batch, device=device)
        return lambda: steps.step(all_rows, steps.ids.shape[1], 0)

    def step() -> Tensor:
        (loss,) = steps.run(documents, targets, rows, 0)
        return loss

    return step


FLOAT = 4  # bytes

# Products of (I, D) by (D, J) per iteration. Forward: logits and sums. Backward: the
# gradients of couplings, of children (twice) and of pulled-back parents.
FORWARD, BACKWARD = 2, 4


def routing_work(
    layer: BenchLayer, size: int, iterations: int, *, train: bool
) -> tuple[float, float]:
    """Return bytes and operations of one routed layer."""
    W = layer.P - layer.K + 1
    passes = 2 if train else 1  # values, and their gradients
    n_bytes = FLOAT * size * layer.B * passes * (layer.P * layer.C + W * layer.J)
    children = layer.B * W * layer.K * layer.C
    products = FORWARD + BACKWARD if train else FORWARD
    return n_bytes, 2 * children * layer.J * size * iterations * products


def routing_floor(
    layer: BenchLayer,
    size: int,
    iterations: int,
    rates: MachineRates,
    *,
    train: bool = True,
) -> float:
    """Return the least seconds of one routed layer, backward pass included."""
    n_bytes, operations = routing_work(layer, size, iterations, train=train)
    return max(n_bytes / rates.bytes_per_second, operations / rates.flops)


def network_floor(
    config: ModelConfig,
    case: BenchCase,
    rates: MachineRates,
    *,
    train: bool,
    n_words: int,
) -> float:
    """Return the least seconds of a whole step, or of a prediction."""
    V, F, C, D = (
        config.embedding_size,
        config.filters,
        config.capsule_types,
        config.capsule_size,
    )
    trains_words = config.embeddings != "static"
    n_bytes, operations = float(FLOAT * case.batch * case.tokens * V), 0.0
    weights = n_words * V if trains_words and train else 0
    for K in ngram_sizes(config):
        edge = edge_width(K) if config.edges else 0
        P = (case.tokens + 2 * edge - K) // config.stride + 1
        # Forward, gradient of the weights, and of the inputs if those are trained.
        ngram = 2 * case.batch * P * K * V * F * ((2 + trains_words) if train else 1)
        linear = 2 * case.batch * P * F * C * D * (3 if train else 1)
        operations += ngram + linear
        types, positions = C, P
        weights += K * V * F + F * C * D
        if config.conv_capsules:
            conv = BenchLayer(case.batch, P, C, config.conv_window, config.conv_types)
            work = routing_work(conv, D, config.iterations, train=train)
            n_bytes, operations = n_bytes + work[0], operations + work[1]
            types, positions = config.conv_types, P - config.conv_window + 1
            weights += config.conv_types * D * D
        E = case.classes + config.orphan
        classes = BenchLayer(case.batch, positions, types, positions, E)
        work = routing_work(classes, D, config.iterations, train=train)
        n_bytes, operations = n_bytes + work[0], operations + work[1]
        weights += E * D * D
    # A weight, its gradient and two moments are read, all but the gradient written.
    n_bytes += FLOAT * weights * (7 if train else 1)
    return max(n_bytes / rates.bytes_per_second, operations / rates.flops)
