"""Time every way to route one layer, forward and backward."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from textcapsules.bench.cases import LAYERS
from textcapsules.bench.floors import routing_floor
from textcapsules.bench.measure import finish_row, measure_ceilings, timed
from textcapsules.model.routing import RoutingOptions, pick_backend, route_windows

__all__ = ["bench_routing"]


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

        def run(backend: str, function: Callable = route_windows) -> None:
            routed = function(
                capsules,  # noqa: B023
                transform,  # noqa: B023
                bias,  # noqa: B023
                mask,  # noqa: B023
                options,
                couplings=False,
                backend=backend,
                precision=precision,
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
