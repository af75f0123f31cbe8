"""The least time of a layer, a step or a prediction: bytes and products counted.

Counts what no way of computing can avoid: every input read and every output written
once, every product of the vote-free form, at the machine's measured rates for float32.
Weights, gradients and Adam's moments are read and written once a step.
"""

from textcapsules.bench.cases import Case, Layer
from textcapsules.bench.measure import Ceilings
from textcapsules.config import ModelConfig
from textcapsules.model.builder import ngram_sizes

__all__ = ["network_floor", "routing_floor"]

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
