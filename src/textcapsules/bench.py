"""How fast, beside what else: every way to route, to train a step and to predict.

All ways are timed in one run on the same numbers, since times of different runs do not
compare. The floor is what the machine, measured in the same run, would need for the
bytes and products that cannot be avoided; a way's share of it says what is left.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from textcapsules.config import RunConfig, preset
from textcapsules.model.builder import build_network
from textcapsules.model.layers import RoutedLayer
from textcapsules.model.routing import RoutingOptions, pick_backend, route_windows
from textcapsules.model.score import score_documents
from textcapsules.training.steps import EagerSteps, GraphSteps

__all__ = ["CASES", "LAYERS", "bench_predict", "bench_routing", "bench_train"]

N_WORDS = 20_000
MIB = 2**20


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


class Ceilings(NamedTuple):
    """What the machine was measured to do."""

    bytes_per_second: float
    flops: float


def measure_ceilings(device: torch.device) -> Ceilings:
    """Time a large copy and a large float32 product."""
    big = 2**26 if device.type == "cuda" else 2**23
    source = torch.ones(big, device=device)
    target = torch.empty_like(source)
    copied = median_seconds(lambda: target.copy_(source), device)
    n = 4096 if device.type == "cuda" else 1024
    a = torch.randn(n, n, device=device)
    product = median_seconds(lambda: a @ a, device)
    return Ceilings(2 * source.nbytes / copied, 2 * n**3 / product)


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
    """Wait until the device has done all it was told."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def timed(name: str, function: Callable[[], Any], device: torch.device) -> dict:
    """Return a row: median, 20 % and 80 % quantiles in ms, and peak memory on a GPU."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    milliseconds = 1e3 * np.array(call_times(function, device))
    low, median, high = np.quantile(milliseconds, (0.2, 0.5, 0.8))
    row = {"way": name, "ms": median, "low_ms": low, "high_ms": high}
    row = {
        key: v if isinstance(v, str) else round(float(v), 4) for key, v in row.items()
    }
    if device.type == "cuda":
        row["peak_mib"] = round(torch.cuda.max_memory_allocated(device) / MIB, 1)
    return row


def routing_floor(layer: Layer, size: int, iterations: int, top: Ceilings) -> float:
    """Return the least seconds of a forward and backward pass of one layer.

    Bytes: children and their gradient once, parents and theirs. Products: two of
    (I, D) by (D, J) an iteration and window forward, four backward.
    """
    W = layer.P - layer.K + 1
    moved = 4 * size * layer.B * (2 * layer.P * layer.C + 2 * W * layer.J)
    children = layer.B * W * layer.K * layer.C
    products = 2 * children * layer.J * size * iterations * 6
    return max(moved / top.bytes_per_second, products / top.flops)


def bench_routing(
    device: torch.device, *, votes: bool = True, compiled: bool = False
) -> Iterator[dict[str, Any]]:
    """Yield rows for every layer: forward and backward of each way to route."""
    top, size, options = measure_ceilings(device), 16, RoutingOptions()
    for name, layer in LAYERS.items():
        B, P, C, K, J = layer
        capsules = torch.randn(B, P, C, size, device=device, requires_grad=True)
        transform = torch.randn(J, size, size, device=device, requires_grad=True)
        bias = torch.randn(J, size, device=device, requires_grad=True)
        mask = torch.ones(B, P - K + 1, K, dtype=torch.bool, device=device)

        def run(backend: str, function: Callable = route_windows) -> None:
            routed = function(
                capsules,  # noqa: B023
                transform,  # noqa: B023
                bias,  # noqa: B023
                mask,  # noqa: B023
                options,
                couplings=False,
                backend=backend,
            )
            routed.poses.sum().backward()

        ways = ["vote-free", pick_backend("auto", capsules, transform, bias, options)]
        ways = ["votes", *ways] if votes else ways
        floor = routing_floor(layer, size, options.iterations, top)
        for way in dict.fromkeys(ways):
            row = timed(way, partial(run, way), device)
            yield finish_row(name, row, floor)
        if compiled:
            run_compiled = partial(run, "vote-free", torch.compile(route_windows))
            row = timed("torch.compile", run_compiled, device)
            yield finish_row(name, row, floor)


def finish_row(case: str, row: dict[str, Any], floor: float) -> dict[str, Any]:
    """Add the case and the share of the floor."""
    share = 1e3 * floor / row["ms"]
    return {
        "case": case,
        **row,
        "floor_ms": round(1e3 * floor, 4),
        "share": round(share, 3),
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


def bench_train(
    device: torch.device,
    *,
    embeddings: str = "static",
    votes: bool = True,
    cases: tuple[str, ...] = ("mr", "ag", "reuters"),
) -> Iterator[dict[str, Any]]:
    """Yield rows for a whole training step of Capsule-B as the paper has it."""
    for name in cases:
        case = CASES[name]
        config = preset("paper").replace(
            model={"embeddings": embeddings}, train={"batch_size": case.batch}
        )
        ways = [("vote-free", EagerSteps), ("auto", EagerSteps)]
        ways = [("votes", EagerSteps), *ways] if votes else ways
        if device.type == "cuda":
            ways += [("vote-free", GraphSteps), ("auto", GraphSteps)]
        for backend, kind in ways:
            step = make_step(config, case, backend, kind, device)
            title = f"{backend}{', CUDA graph' if kind is GraphSteps else ''}"
            yield {"case": name, "embeddings": embeddings, **timed(title, step, device)}
            del step


def make_step(
    config: RunConfig, case: Case, backend: str, kind: type, device: torch.device
) -> Callable[[], Any]:
    """Return one training step on random texts, ready to be called again and again."""
    torch.manual_seed(0)
    network = build_network(
        config.model,
        n_words=N_WORDS,
        n_classes=case.classes,
        max_tokens=max(case.tokens, 200),
    ).to(device)
    for layer in network.modules():
        if isinstance(layer, RoutedLayer):
            layer.backend = backend
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


def bench_predict(
    device: torch.device, *, n_texts: int = 2000, mean_tokens: int = 20
) -> Iterator[dict[str, Any]]:
    """Yield texts a second of Capsule-B on random texts of sentence length."""
    torch.manual_seed(0)
    network = build_network(
        preset("paper").model, n_words=N_WORDS, n_classes=2, max_tokens=200
    ).to(device)
    rng = np.random.default_rng(0)
    lengths = np.clip(rng.poisson(mean_tokens, n_texts), 3, None)
    documents = [rng.integers(2, N_WORDS, n).astype(np.int32) for n in lengths]
    for way in ("vote-free", "auto"):
        with backend_of(network, way):
            row = timed(way, lambda: score_documents(network, documents), device)
        rate = round(1e3 * n_texts / row["ms"])
        yield {"case": f"{n_texts} texts", **row, "texts_per_second": rate}
