"""The benchmarks of one process: routing, training steps, prediction, and scaling.

`bench_routing` times every way to route one layer, forward and backward; `bench_train`
a whole training step of the paper's Capsule-B; `bench_predict` the prediction of texts
of sentence length, from word numbers and from strings. `bench_scaling` shows how the
time and memory of a training step grow with length, classes, batch and threads.
"""

import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from textcapsules.config import ModelConfig, preset
from textcapsules.lab.bench.cases import (
    BENCH_CASES,
    BENCH_LAYERS,
    N_WORDS,
    BenchCase,
    make_step,
    network_floor,
    routing_floor,
    set_backend,
)
from textcapsules.lab.bench.measure import finish_row, measure_rates, timed
from textcapsules.model.builder import build_network, ngram_sizes
from textcapsules.model.classifier import Labels, TextClassifier
from textcapsules.model.routing import RoutingOptions, pick_backend, route_windows
from textcapsules.model.score import score_documents
from textcapsules.text.vocabulary import PAD, UNK, TextTokenizer
from textcapsules.training.steps import EagerSteps, GraphSteps

__all__ = ["SCALES", "bench_predict", "bench_routing", "bench_scaling", "bench_train"]


def forward_and_backward(
    inputs: tuple[Tensor, Tensor, Tensor],
    mask: Tensor,
    options: RoutingOptions,
    backend: str,
    *,
    precision: str,
    gain: Tensor | None = None,
    function: Callable = route_windows,
) -> None:
    """Route one layer and compute the gradients of its inputs and its gain."""
    how = {"couplings": False, "backend": backend, "precision": precision}
    routed = function(*inputs, mask, options, gain=gain, **how)
    learnt = inputs if gain is None else (*inputs, gain)
    torch.autograd.grad(routed.poses, learnt, torch.ones_like(routed.poses))


def captured(function: Callable[[], None]) -> Callable[[], None]:
    """Return the replay of a CUDA graph of a function that has been called before.

    A replay has no launches from Python: only the time of the kernels is left.
    """
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # a capture must not see kernels being compiled
        function()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function()
    return graph.replay


def bench_routing(
    device: torch.device,
    *,
    votes: bool = True,
    compiled: bool = False,
    precision: str = "ieee",
) -> Iterator[dict[str, Any]]:
    """Yield a row per layer and way to route, forward and backward together."""
    rates, size, options = measure_rates(device), 16, RoutingOptions()
    in_bf16 = precision == "bf16"  # capsules are stored in 16 bits
    how = {"device": device, "dtype": torch.bfloat16 if in_bf16 else torch.float32}
    precision = "ieee" if in_bf16 else precision
    for name, layer in BENCH_LAYERS.items():
        B, P, C, K, J = layer
        capsules = torch.randn(B, P, C, size, **how, requires_grad=True)
        transform = torch.randn(J, size, size, **how, requires_grad=True)
        bias = torch.randn(J, size, **how, requires_grad=True)
        mask = torch.ones(B, P - K + 1, K, dtype=torch.bool, device=device)
        inputs = (capsules, transform, bias)
        run = partial(forward_and_backward, inputs, mask, options, precision=precision)
        kernel = pick_backend("auto", capsules, transform, bias, options)
        ways = ["votes", "vote-free", kernel] if votes else ["vote-free", kernel]
        calls = {way: partial(run, way) for way in ways}
        gain = torch.full((), 20.0, **how, requires_grad=True)
        scaled = (inputs, mask, options._replace(normalise="total"), kernel)
        calls[f"{kernel}, normalised"] = partial(
            forward_and_backward, *scaled, precision=precision, gain=gain
        )
        floor = routing_floor(layer, size, options.iterations, rates)
        for way, call in calls.items():
            row = timed(way, call, device)
            yield finish_row(name, row, floor)
            if device.type == "cuda":
                row = timed(f"{way}, CUDA graph", captured(call), device)
                yield finish_row(name, row, floor)
        if compiled:
            run_compiled = partial(
                run, "vote-free", function=torch.compile(route_windows)
            )
            row = timed("torch.compile", run_compiled, device)
            yield finish_row(name, row, floor)


def bench_train(
    device: torch.device,
    *,
    embeddings: str = "static",
    votes: bool = True,
    compiled: bool = False,
    precision: str = "ieee",
    cases: tuple[str, ...] = ("mr", "ag", "reuters"),
) -> Iterator[dict[str, Any]]:
    """Yield a row per case and way to run the step."""
    rates = measure_rates(device)
    for name in cases:
        case = BENCH_CASES[name]
        config = preset("paper").replace(
            model={"embeddings": embeddings},
            train={"batch_size": case.batch, "precision": precision},
        )
        floor = network_floor(config.model, case, rates, train=True, n_words=N_WORDS)
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


def bench_predict(
    device: torch.device, *, n_texts: int = 2000, mean_tokens: int = 20
) -> Iterator[dict[str, Any]]:
    """Yield the texts per second of Capsule-B on random texts of sentence length.

    The last row begins with strings and ends with labels: tokenising is part of it.
    """
    torch.manual_seed(0)
    config = preset("paper").replace(text={"rule": "kim"})
    network = build_network(config.model, n_words=N_WORDS, n_classes=2, max_tokens=200)
    network = network.to(device)
    rng = np.random.default_rng(0)
    lengths = np.clip(rng.poisson(mean_tokens, n_texts), 3, None)
    documents = [rng.integers(2, N_WORDS, n).astype(np.int32) for n in lengths]
    words = [PAD, UNK, *(f"word{row}" for row in range(2, N_WORDS))]
    texts = [" ".join(words[row] for row in ids) for ids in documents]
    tokenizer = TextTokenizer(words, rule=config.text.rule)
    labels = Labels(("a", "b"), (0.5, 0.5), "single-label")
    classifier = TextClassifier(config, tokenizer, labels, network)
    case = BenchCase(n_texts, mean_tokens, 2)
    rates = measure_rates(device)
    floor = network_floor(config.model, case, rates, train=False, n_words=N_WORDS)
    ways: list[tuple[str, str, Callable[[], Any]]] = [
        ("vote-free", "vote-free", lambda: score_documents(network, documents)),
        ("auto", "auto", lambda: score_documents(network, documents)),
        ("auto, from strings", "auto", lambda: classifier.predict(texts)),
    ]
    for title, backend, call in ways:
        set_backend(network, backend)
        row = timed(title, call, device)
        rate = round(1e3 * n_texts / row["ms"])
        row = finish_row(f"{n_texts} texts", row, floor)
        yield {**row, "texts_per_second": rate}


# One size grows at a time; the last needs long texts and many classes at once.
SCALES: dict[str, list[BenchCase]] = {
    "length": [BenchCase(8, n, 4) for n in (50, 200, 1000, 4000)],
    "classes": [BenchCase(8, 60, n) for n in (2, 10, 100, 1000, 10_000)],
    "batch": [BenchCase(n, 60, 4) for n in (1, 8, 64, 256, 1024)],
    "long and many": [BenchCase(4, 4000, 1000)],
}
# The sizes that two cores can time in minutes.
SMALL: dict[str, list[BenchCase]] = {
    "length": [BenchCase(4, n, 4) for n in (50, 100, 200, 400, 800)],
    "classes": [BenchCase(4, 60, n) for n in (2, 8, 32, 128, 512)],
    "batch": [BenchCase(n, 60, 4) for n in (1, 4, 16, 64)],
}
THREADS_CASE = BenchCase(16, 60, 4)  # the size at which the number of threads grows
# A CPU has no limit of its own: too many votes would fill the machine's memory, and
# take minutes. This many numbers take some 2 GB with their gradients.
MOST_VOTES = 100_000_000


def bench_scaling(
    device: torch.device, *, votes: bool = True, precision: str = "ieee"
) -> Iterator[dict[str, Any]]:
    """Yield a row per size and way; `grows` names the one size that grows.

    On a CPU the number of threads grows too. Votes are formed where the memory allows.
    """
    threads = torch.get_num_threads()
    on_gpu = device.type == "cuda"
    for axis, cases in (SCALES if on_gpu else SMALL).items():
        for case in cases:
            for row in scaling_rows(device, case, votes=votes, precision=precision):
                yield {"grows": axis, **case._asdict(), "threads": threads, **row}
    if on_gpu:
        return
    case = THREADS_CASE
    for count in thread_counts(os.cpu_count() or 1):
        torch.set_num_threads(count)
        try:
            rows = list(scaling_rows(device, case, votes=votes, precision=precision))
        finally:
            torch.set_num_threads(threads)
        for row in rows:
            yield {"grows": "threads", **case._asdict(), "threads": count, **row}


def scaling_rows(
    device: torch.device, case: BenchCase, *, votes: bool, precision: str
) -> Iterator[dict[str, Any]]:
    """Yield the time of a training step of one size, a row per way."""
    config = preset("paper").replace(
        text={"max_tokens": max(case.tokens, 200)},
        model={"embeddings": "static"},
        train={"batch_size": case.batch, "precision": precision},
    )
    on_gpu = device.type == "cuda"
    ways: list[tuple[str, type]] = [
        ("vote-free", EagerSteps),
        ("auto", GraphSteps if on_gpu else EagerSteps),
    ]
    if votes:
        ways.insert(0, ("votes", EagerSteps))
    for way, kind in ways:
        if way == "votes" and not on_gpu and n_votes(config.model, case) > MOST_VOTES:
            yield {"way": way, "ms": "left out"}
            continue
        try:
            step = make_step(config, case, way, kind, device)
            row = timed(way, step, device)
            del step
        except torch.OutOfMemoryError:
            row = {"way": way, "ms": "out of memory"}
        yield row


def n_votes(config: ModelConfig, case: BenchCase) -> int:
    """Return how many numbers the votes of all routed layers of Capsule-B are."""
    conv = config.conv_window * config.capsule_types * config.conv_types
    classes = config.conv_types * (case.classes + config.orphan)
    positions = case.batch * case.tokens * len(ngram_sizes(config))
    return positions * (conv + classes) * config.capsule_size


def thread_counts(cores: int) -> list[int]:
    """Return 1, 2, 4, ... up to the number of cores, which is the last.

    >>> thread_counts(2), thread_counts(12)
    ([1, 2], [1, 2, 4, 8, 12])
    """
    powers = [2**n for n in range(cores.bit_length()) if 2**n < cores]
    return [*powers, cores]
