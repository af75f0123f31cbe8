"""Kernels are compiled ahead of a training without any effect on it."""

import logging
from typing import Any

import numpy as np
import pytest
import torch

from textcapsules.model.layers import RoutedLayer
from textcapsules.training import ahead, run
from textcapsules.training.run import train
from toy import tiny_config


def weights(source, folder, **changes) -> dict[str, torch.Tensor]:
    config = tiny_config(source, train={"epochs": 2, **changes})
    network: Any = train(config, folder, test_reasons=False).network
    return network.state_dict()


def dry(network, config, train, scored, device, *, scale=False) -> None:
    """Do all of `compile_ahead` that needs no GPU."""
    lengths = ahead.lengths_tried(train.documents, network.length_step)
    ahead.dry_run(network, config, train, scored, lengths, scale=scale)
    layers = [m for m in network.modules() if isinstance(m, RoutedLayer)]
    assert {layer.precision for layer in layers} == {"ieee"}
    assert all(p.grad is None for p in network.parameters())


@pytest.mark.parametrize("start_length", [0.0, 0.5])
def test_a_training_is_the_same_after_a_dry_run(
    source, tmp_path, monkeypatch, start_length: float
) -> None:
    changes = {"start_length": start_length, "joined": 0.5}
    monkeypatch.setattr(run, "compile_ahead", lambda *_, **__: None)
    expected = weights(source, tmp_path / "plain", **changes)
    monkeypatch.setattr(run, "compile_ahead", dry)
    found = weights(source, tmp_path / "ahead", **changes)
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_whatever_fails_is_no_error(source, tmp_path, monkeypatch, caplog) -> None:
    caplog.set_level(logging.DEBUG, "textcapsules.training.ahead")

    def fails(*_, **__):
        raise RuntimeError("out of memory")

    def on_a_gpu(network, config, train, scored, device, *, scale=False):
        gpu = torch.device("cuda")
        ahead.compile_ahead(network, config, train, scored, gpu, scale=scale)

    pytest.importorskip("triton", reason="Triton is not installed")
    monkeypatch.setattr(ahead, "dry_run", fails)
    monkeypatch.setattr(run, "compile_ahead", on_a_gpu)
    assert weights(source, tmp_path / "model")
    assert "out of memory" in caplog.text


def test_the_shortest_and_the_longest_are_tried() -> None:
    documents = [np.zeros(n, dtype=np.int32) for n in range(1, 400)]
    lengths = ahead.lengths_tried(documents, 8)
    assert (lengths[0], lengths[-1]) == (8, 400)
    assert len(lengths) == ahead.MOST_LENGTHS
    assert ahead.lengths_tried(documents[:9], 8) == [8, 16]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_trains_the_same_after_compiling_ahead(
    source, tmp_path, monkeypatch
) -> None:
    found = weights(source, tmp_path / "ahead", device="cuda")
    monkeypatch.setattr(run, "compile_ahead", lambda *_, **__: None)
    expected = weights(source, tmp_path / "plain", device="cuda")
    assert all(torch.equal(found[name], expected[name]) for name in expected)
