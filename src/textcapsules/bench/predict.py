"""Time the prediction of texts of sentence length."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from textcapsules.bench.cases import N_WORDS, Case, backend_of
from textcapsules.bench.floors import network_floor
from textcapsules.bench.measure import finish_row, measure_ceilings, timed
from textcapsules.config import preset
from textcapsules.model.builder import build_network
from textcapsules.model.score import score_documents

__all__ = ["bench_predict"]


def bench_predict(
    device: torch.device, *, n_texts: int = 2000, mean_tokens: int = 20
) -> Iterator[dict[str, Any]]:
    """Yield texts a second of Capsule-B on random texts of sentence length."""
    torch.manual_seed(0)
    config = preset("paper").model
    network = build_network(config, n_words=N_WORDS, n_classes=2, max_tokens=200)
    network = network.to(device)
    rng = np.random.default_rng(0)
    lengths = np.clip(rng.poisson(mean_tokens, n_texts), 3, None)
    documents = [rng.integers(2, N_WORDS, n).astype(np.int32) for n in lengths]
    case = Case(n_texts, mean_tokens, 2)
    top = measure_ceilings(device)
    floor = network_floor(config, case, top, train=False, n_words=N_WORDS)
    for way in ("vote-free", "auto"):
        with backend_of(network, way):
            row = timed(way, lambda: score_documents(network, documents), device)
        rate = round(1e3 * n_texts / row["ms"])
        row = finish_row(f"{n_texts} texts", row, floor)
        yield {**row, "texts_per_second": rate}
