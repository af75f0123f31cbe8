"""Routing some windows at a time: the same numbers, and no more votes than a chunk."""

from typing import Any

import pytest
import torch
from torch import Tensor

from textcapsules.model.routing import RoutingOptions, chunked
from textcapsules.model.routing.chunked import route_in_chunks
from textcapsules.model.routing.reference import route_with_votes


def problem(B: int, *, bias: bool) -> tuple[list[Any], Tensor]:
    I, J, D, H = 6, 3, 4, 5  # noqa: E741
    inputs = [torch.randn(B, I, D), torch.randn(I, J, D, H)]
    inputs += [torch.randn(I, J, H)] if bias else []
    leaves = [t.double().requires_grad_() for t in inputs]
    return leaves, torch.rand(B, I) > 0.3


@pytest.mark.parametrize("rows", [1, 2, 3, 100], ids="{} rows".format)
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("B", [1, 5])
def test_chunks_give_what_all_votes_at_once_give(monkeypatch, rows, bias, B) -> None:
    monkeypatch.setitem(chunked.CHUNK_BYTES, "cpu", rows * 6 * 3 * 5 * 8)
    leaves, mask = problem(B, bias=bias)
    results = []
    for route in (route_with_votes, route_in_chunks):
        u, W, beta = [*leaves, None][:3]
        routed = route(u, W, beta, mask)
        loss = sum(
            (t * torch.linspace(1, 2, t.numel()).view_as(t)).sum() for t in routed
        )
        results.append([*routed, *torch.autograd.grad(loss, leaves)])  # type: ignore[arg-type]
    for plain, in_chunks in zip(*results, strict=True):
        torch.testing.assert_close(in_chunks, plain, rtol=1e-12, atol=1e-12)


def test_only_one_chunk_of_votes_is_ever_saved(monkeypatch) -> None:
    """What autograd keeps between the passes must not grow with the votes."""
    leaves, mask = problem(64, bias=True)
    kept = {}
    for route in (route_with_votes, route_in_chunks):
        monkeypatch.setitem(chunked.CHUNK_BYTES, "cpu", 4 * 6 * 3 * 5 * 8)
        sizes: list[int] = []

        def note(tensor, sizes=sizes):
            sizes.append(tensor.numel())
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(note, lambda t: t):
            u, W, beta = leaves
            route(u, W, beta, mask, RoutingOptions(iterations=2))
        kept[route] = max(sizes, default=0)
    n_votes = 64 * 6 * 3 * 5
    assert kept[route_with_votes] >= n_votes
    assert kept[route_in_chunks] < n_votes / 8


def test_no_rows_give_no_rows() -> None:
    leaves, mask = problem(0, bias=True)
    u, W, beta = leaves
    routed = route_in_chunks(u, W, beta, mask)
    assert routed.poses.shape == (0, 3, 5)
