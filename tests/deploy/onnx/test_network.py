"""The ONNX graph against the network it was written from, option by option."""

from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch

from textcapsules.base.errors import ModelFolderError
from textcapsules.config import ModelConfig
from textcapsules.deploy.onnx.graph import Graph, squashed_norm
from textcapsules.deploy.onnx.network import network_graph
from textcapsules.model.builder import build_network
from textcapsules.model.capsnet import CapsuleNetwork
from textcapsules.model.functional import SQUASHES
from textcapsules.model.score import drop_unreadable, score_documents

pytestmark = pytest.mark.slow

N_WORDS, N_CLASSES, MAX_TOKENS = 50, 3, 20
SMALL: dict[str, Any] = {
    "embedding_size": 8,
    "filters": 4,
    "capsule_types": 2,
    "capsule_size": 4,
    "conv_types": 3,
}
RELEASED: dict[str, Any] = {
    "mask_padding": False,
    "stride": 2,
    "average": "poses",
    "leaky": False,
    "amendment": False,
    "squash": "released",
    "transform_bias": False,
}


def small_network(**changes: Any) -> CapsuleNetwork:
    config = ModelConfig(**{**SMALL, **changes})
    network = build_network(
        config, n_words=N_WORDS, n_classes=N_CLASSES, max_tokens=MAX_TOKENS
    )
    assert isinstance(network, CapsuleNetwork)
    with torch.no_grad():  # weights large enough for scores that tell texts apart
        for name, weight in network.named_parameters():
            factor = 8.0 if name.startswith("embedding") else 2.0
            weight.mul_(factor)
            if name.endswith("bias"):
                weight.uniform_(-0.3, 0.3)
    return network.eval()


def session_of(network: CapsuleNetwork) -> onnxruntime.InferenceSession:
    model = network_graph(network, MAX_TOKENS, {})
    return onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )


def run(session: onnxruntime.InferenceSession, ids: np.ndarray) -> np.ndarray:
    return np.asarray(session.run(["scores"], {"ids": ids})[0])


def scores_of(network: CapsuleNetwork, ids: np.ndarray) -> np.ndarray:
    documents = drop_unreadable([row[row > 0].astype(np.int32) for row in ids])
    scores = score_documents(network, documents)
    scores[[len(document) == 0 for document in documents]] = 0
    return scores


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"architecture": "capsule-a"},
        {"conv_capsules": False},
        {"architecture": "capsule-a", "ngram_sizes": (1,), "conv_capsules": False},
        {"stride": 2},
        {"stride": 3, "conv_window": 2},
        {"shared": False},
        {"shared": False, "transform_bias": False, "conv_capsules": False},
        {"edges": True},
        {"edges": True, "shared": False},
        {"edges": True, "stride": 2, "conv_capsules": False},
        {"edges": True, "mask_padding": False},
        RELEASED,
        {"average": "poses"},
        {"leaky": False, "orphan": False},
        {"amendment": False},
        {"iterations": 1},
        {"iterations": 5},
        {"normalise": "total", "routing_gain": 5.0},
        {"normalise": "total", "conv_capsules": False, "amendment": False},
        {"normalise": "total", "shared": False},
        {"compete": False},
        {"compete": False, "leaky": False},
        {"compete": False, "routing": "attention"},
        {"joint": True},
        {"joint": True, "edges": True, "ngram_sizes": (1, 2, 4)},
        {"joint": True, "stride": 2},
        {"peaks": True},
        {"peaks": True, "joint": True, "edges": True, "normalise": "total"},
        {"peaks": True, "shared": False, "conv_capsules": False, "stride": 2},
        {"peaks": True, "mask_padding": False, "average": "poses"},
        {"peaks": True, "routing": "attention"},
        {"routing": "attention"},
        {"routing": "attention", "conv_capsules": False, "joint": True, "edges": True},
        {"routing": "attention", "leaky": False, "orphan": False, "iterations": 1},
        *({"squash": kind} for kind in (*SQUASHES, "none")),
    ],
    ids=str,
)
def test_graph_gives_the_scores_of_the_network(changes: dict[str, Any]) -> None:
    network = small_network(**changes)
    session = session_of(network)
    draw = np.random.default_rng(0)
    seen = []
    for n_texts, n_tokens in [(1, 0), (1, 1), (2, 2), (7, 5), (1, 20), (33, 13)]:
        ids = draw.integers(2, N_WORDS, (n_texts, n_tokens))
        lengths = draw.integers(0, n_tokens + 1, (n_texts, 1))
        ids[np.arange(n_tokens) >= lengths] = 0  # padding after each text's end
        ids[n_texts // 2, : n_tokens // 2] = 1  # unknown words
        if n_texts > 2:
            ids[2, :] = np.minimum(ids[2, :], 1)  # nothing known: scores zero
        expected, found = scores_of(network, ids), run(session, ids)
        np.testing.assert_allclose(found, expected, atol=1e-5, rtol=1e-4)
        seen.append(expected)
    # The comparison is of something: scores differ from text to text.
    assert np.concatenate(seen).std(0).min() > 1e-3


def test_padding_after_a_text_changes_nothing() -> None:
    session = session_of(small_network())
    ids = np.array([[5, 9, 13, 4, 22, 31, 7, 8]])
    longer = np.pad(ids, ((0, 0), (0, 9)))
    np.testing.assert_allclose(run(session, ids), run(session, longer), atol=1e-6)


def test_other_systems_are_refused() -> None:
    with pytest.raises(ModelFolderError, match=r"must be a capsule network.*got a Lin"):
        network_graph(torch.nn.Linear(2, 2), MAX_TOKENS, {})


def test_weights_past_one_file_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("textcapsules.deploy.onnx.network.MAX_BYTES", 1000)
    with pytest.raises(ModelFolderError, match=r"must have under .* GB of weights"):
        network_graph(small_network(), MAX_TOKENS, {})


def test_a_squash_that_the_graph_does_not_have_is_refused() -> None:
    with pytest.raises(ModelFolderError, match="got 'cube'"):
        squashed_norm(Graph(), "x", "cube")
