"""What words say inside an ONNX graph, against the network in torch."""

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from random_models import random_network, random_words
from textcapsules.config import preset
from textcapsules.deploy.onnx.export import export_onnx, in_float32
from textcapsules.deploy.onnx.network import network_graph
from textcapsules.model.classifier import TextClassifier
from textcapsules.model.network import Network
from textcapsules.model.score import drop_unreadable, score_documents
from textcapsules.text.pieces import FIRST_PIECE
from textcapsules.training.run import train
from tiny_encoder import write_encoder
from toy import TINY_TRAIN, toy_file, toy_rows, worded_model

EXAMPLE = Path(__file__).parents[3] / "examples" / "onnx_predict.py"
N_ROWS, MAX_TOKENS = 22, 16  # of the random network
AWKWARD = ["", " ", "zzz unknown", "cat", "cat zzz purr", "bird " * 300]


def example() -> Any:
    spec = importlib.util.spec_from_file_location("onnx_predict", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("drop", [False, True], ids=["keep", "drop"])
@pytest.mark.parametrize("pairs", [False, True], ids=["words", "pairs"])
def test_graph_gives_the_scores_of_network_and_words(pairs: bool, drop: bool) -> None:
    network = random_network().float()
    alone = network_scores(network, [np.arange(2, 9)])
    # A small α: the zero of a text without a known word must stay zero.
    network.words = random_words(N_ROWS, 3, pairs=pairs, weights=(0.5, 1.5, 1.0))
    assert abs(network_scores(network, [np.arange(2, 9)]) - alone).min() > 1e-3
    model = network_graph(network, MAX_TOKENS, {}, drop_unknown=drop)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    draw = np.random.default_rng(0)
    for n_texts, n_tokens in [(1, 0), (1, 1), (2, 2), (7, 5), (1, 16), (33, 13)]:
        ids = draw.integers(1, N_ROWS, (n_texts, n_tokens))
        lengths = draw.integers(0, n_tokens + 1, (n_texts, 1))
        ids[np.arange(n_tokens) >= lengths] = 0
        if n_texts > 2:
            ids[2] = np.minimum(ids[2], 1)  # nothing known
            ids[3, :4] = [5, 5, 6, 5]  # words and pairs that come again
        documents = drop_unreadable([row[row > 0].astype(np.int32) for row in ids])
        if drop:
            documents = [row[row > 1] for row in documents]
        expected = network_scores(network, documents)
        found = np.asarray(session.run(["scores"], {"ids": ids})[0])
        np.testing.assert_allclose(found, expected, atol=1e-5)
        longer = {"ids": np.pad(ids, ((0, 0), (0, 3)))}
        padded = np.asarray(session.run(["scores"], longer)[0])
        np.testing.assert_allclose(padded, expected, atol=1e-5)


def network_scores(network: Network, documents: list) -> np.ndarray:
    return score_documents(network, documents)


@pytest.mark.slow
def test_example_gives_the_labels_of_a_model_with_words(tmp_path: Path) -> None:
    classifier = TextClassifier.load(worded_model(), "cpu")
    facts = export_onnx(classifier, tmp_path)
    assert facts["largest_difference"] <= 1e-5
    texts = [text for text, _ in toy_rows(60, seed=7)] + AWKWARD
    expected = [list(each.labels) for each in classifier.predict(texts)]
    assert expected[-len(AWKWARD) :][:3] == [[], [], []]
    assert example().predict(tmp_path, texts) == expected


@pytest.mark.slow
@pytest.mark.parametrize("encode_by", ["sentences", "texts"])
def test_pieces_say_the_same_where_they_begin_a_sentence(
    tmp_path: Path, encode_by: str
) -> None:
    write_encoder(tmp_path / "encoder")
    config = preset("encoder-frozen").replace(
        data={"source": str(toy_file(tmp_path, 360))},
        text={"encoder": str(tmp_path / "encoder"), "encode_by": encode_by},
        model={"architecture": "encoder-linear"},
        train={**TINY_TRAIN, "epochs": 1, "batch_size": 20, "word_scores": "pairs"},
    )
    classifier = train(config, tmp_path / "model", test_reasons=False)
    network: Any = classifier.network
    assert network.words is not None and network.words.n_marked > 0
    texts = ["Cat. Cat purr! The dog", "cat cat", *AWKWARD[:3], "the cat barks"]
    (ids,) = classifier.encode(texts[:1])
    begins = ids >= FIRST_PIECE + network.words.n_marked
    assert begins.sum() == (3 if encode_by == "sentences" else 0)
    export_onnx(classifier, tmp_path / "out")
    with in_float32(classifier):
        expected = classifier.predict(texts)
    found = example().predict(tmp_path / "out", texts)
    assert found == [list(each.labels) for each in expected]
    assert not any(found[2:4])
