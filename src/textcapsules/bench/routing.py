"""Time every way to route one layer, forward and backward."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from textcapsules.bench.cases import LAYERS
from textcapsules.bench.floors import routing_floor
from textcapsules.bench.measure import finish_row, measure_ceilings, timed
from textcapsules.model.routing import RoutingOptions, pick_backend, route_windows

__all__ = ["bench_routing"]


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
    """Route one layer and find the gradients of its inputs, the gain's among them."""
    how = {"couplings": False, "backend": backend, "precision": precision}
    routed = function(*inputs, mask, options, gain=gain, **how)
    learnt = inputs if gain is None else (*inputs, gain)
    torch.autograd.grad(routed.poses, learnt, torch.ones_like(routed.poses))


def captured(function: Callable[[], None]) -> Callable[[], None]:
    """Return a CUDA graph's replay of what has been called before.

    Without launches from Python between them, the kernels' own time is left.
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
    """Yield rows for every layer: forward and backward of each way to route."""
    top, size, options = measure_ceilings(device), 16, RoutingOptions()
    small = precision == "bf16"  # what is routed is stored in 16 bits
    how = {"device": device, "dtype": torch.bfloat16 if small else torch.float32}
    precision = "ieee" if small else precision
    for name, layer in LAYERS.items():
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
        floor = routing_floor(layer, size, options.iterations, top)
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
