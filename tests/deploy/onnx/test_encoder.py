"""Models on a pretrained encoder as ONNX files: the product's scores and labels."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from textcapsules.base.errors import ModelFolderError
from textcapsules.config import ModelConfig, preset
from textcapsules.deploy.onnx.encoder import float_states, trace
from textcapsules.deploy.onnx.export import export_onnx, in_float32
from textcapsules.deploy.onnx.graph import Graph
from textcapsules.deploy.onnx.network import network_graph
from textcapsules.model.builder import build_network
from textcapsules.model.classifier import TextClassifier
from textcapsules.model.score import drop_unreadable, score_documents
from textcapsules.text.encoder import EncoderEmbedding, load_encoder
from textcapsules.text.piece_vectors import PieceVectors, known_pieces
from textcapsules.text.pieces import clause_places, sentence_places
from textcapsules.training.run import train
from tiny_encoder import write_encoder
from toy import TINY_TRAIN, refusal, run_cli, toy_file, toy_rows

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[3] / "examples" / "onnx_predict.py"
SMALL: dict[str, Any] = {
    "filters": 4,
    "capsule_types": 2,
    "capsule_size": 4,
    "conv_types": 3,
}
SIDE_BY_SIDE = {"conv_capsules": False, "joint": True, "edges": True}
UNKNOWN = "\u2603"
TEXTS = [
    "",
    f"{UNKNOWN} {UNKNOWN}. {UNKNOWN}",  # nothing known
    "cat",
    "My cat purrs. The app crashes! My card is charged twice, and the dog growls.",
    "Dr. cat meows at 3.50 p.m. [SEP] is no token\n\n- tail\n- fur",
    f"{UNKNOWN} cat {UNKNOWN}. {UNKNOWN} dog barks {UNKNOWN}. a",
    "bark " * 150 + ". hello",  # a sentence of three windows
    "cat. " * 300,  # cut at the model's length
]
MAX_TOKENS = 200
# States are kept in half precision: where two differ in the last bit of float32, one
# may be rounded up and the other down.
CLOSE = 5e-5


def example() -> Any:
    spec = importlib.util.spec_from_file_location("onnx_predict", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("drop", [False, True], ids=["keep", "drop"])
@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("bert", SIDE_BY_SIDE),
        ("mpnet", {"routing": "attention"}),
        ("roberta", {"architecture": "encoder-linear"}),
        ("xlm-roberta", {"stride": 2, "shared": False}),
        ("deberta-v2", {"architecture": "encoder-attention"}),
        ("modernbert", SIDE_BY_SIDE),
        ("bert", {**SIDE_BY_SIDE, "piece_size": 6}),
        ("mpnet", {"piece_size": 6, "peaks": True}),
    ],
    ids=str,
)
def test_graph_gives_the_scores_of_the_network(
    tmp_path: Path, kind: str, changes: dict[str, Any], drop: bool
) -> None:
    encoder = load_encoder(str(write_encoder(tmp_path / "encoder", kind)))
    torch.manual_seed(0)
    rows, pieces = encoder.tokenizer.encode(TEXTS, MAX_TOKENS), None
    if size := changes.get("piece_size"):  # not all of the texts' pieces have vectors
        known = known_pieces(rows[3:5], encoder.states.n_pieces)
        pieces = PieceVectors(known, size=size)
    network = build_network(
        ModelConfig(**{**SMALL, **changes}),
        n_words=2,
        n_classes=3,
        max_tokens=MAX_TOKENS,
        several=kind != "roberta",
        encoder=EncoderEmbedding(float_states(encoder.states), pieces),
    ).eval()
    if pieces is not None:  # views that count unequally
        network.shares.copy_(torch.linspace(0.1, 0.7, len(network.shares)))
    assert max(map(len, rows)) > encoder.tokenizer.max_pieces
    documents = drop_unreadable(rows)
    if drop:
        documents = [document[document > 1] for document in documents]
    expected = score_documents(network, documents)
    model = network_graph(network, MAX_TOKENS, {}, drop_unknown=drop)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    together = np.zeros((len(rows), max(map(len, rows)) + 5), np.int64)
    for number, row in enumerate(rows):
        together[number, : len(row)] = row
    found = np.asarray(session.run(["scores"], {"ids": together})[0])
    alone = [
        np.asarray(session.run(["scores"], {"ids": row[None].astype(np.int64)})[0])
        for row in rows
    ]
    np.testing.assert_allclose(found, expected, atol=CLOSE)
    np.testing.assert_allclose(np.concatenate(alone), expected, atol=CLOSE)
    assert expected[2:].std(0).min() > 1e-3  # texts have scores of their own


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("on-encoder")
    write_encoder(folder / "encoder", "mpnet")
    toy_file(folder, 360)
    return folder


def trained(place: Path, name: str, **sections: dict[str, Any]) -> Path:
    folder = place / name
    config = preset("encoder-frozen").replace(
        data={"source": str(place / "toy.csv")},
        text={"encoder": str(place / "encoder"), "max_tokens": MAX_TOKENS},
        model=SMALL,
        train={**TINY_TRAIN, "epochs": 2, "task": "multi-label"},
    )
    if not folder.exists():
        train(config.replace(**sections), folder, test_reasons=False)
    return folder


@pytest.mark.parametrize(
    ("name", "sections"),
    [
        ("clauses", {}),
        (
            "sentences",
            {"text": {"encode_by": "sentences", "unknown": "keep"}}
            | {"train": {"task": "single-label"}},
        ),
        ("texts", {"text": {"encode_by": "texts"}}),
        ("linear", {"model": {"architecture": "encoder-linear"}}),
        ("attention", {"model": {"architecture": "encoder-attention"}}),
    ],
)
def test_example_gives_the_labels_of_predict(
    place: Path, tmp_path: Path, name: str, sections: dict[str, Any]
) -> None:
    folder = trained(place, name, **sections)
    ran = run_cli("export", folder, "--json", "--out", tmp_path / "out")
    assert ran.code == 0, ran
    facts = json.loads(ran.out.splitlines()[-1])
    assert facts["largest_difference"] <= CLOSE
    classifier = TextClassifier.load(folder, "cpu")
    texts = [f"{text}. the dog barks, and a cat purrs" for text, _ in toy_rows(20)]
    texts += [text for text, _ in toy_rows(20, seed=5)] + TEXTS
    script = example()
    about = json.loads((tmp_path / "out" / "labels.json").read_text())
    with in_float32(classifier):
        read = classifier.read(texts)
        expected = [list(each.labels) for each in classifier.predict(texts)]
    scores, outside = script.score(tmp_path / "out", about, texts)
    np.testing.assert_allclose(scores, read.scores, atol=CLOSE)
    assert (outside == read.outside).all() and outside.any()
    assert script.predict(tmp_path / "out", texts) == expected
    # Both, texts with labels and texts without.
    assert 0 < sum(map(bool, expected)) < len(expected)


def test_example_cuts_texts_as_the_model_does(place: Path, tmp_path: Path) -> None:
    folder = trained(place, "clauses")
    export_onnx(TextClassifier.load(folder, "cpu"), tmp_path)
    how = json.loads((tmp_path / "labels.json").read_text())["reading"]
    script, draw = example(), np.random.default_rng(0)
    parts = [
        "I",
        "Dr",
        "e.g",
        "cat",
        "x",
        "3",
        "and",
        "But",
        " ",
        " ",
        " ",
        "\n",
        "\n\n",
    ]
    parts += [".", "!", "?", "...", ",", ";", ")", '"', "\n- ", "\u3002", "  "]
    for _ in range(500):
        text = "".join(draw.choice(parts, draw.integers(0, 60)))
        for rule, places in (
            ({**how, "link": None}, sentence_places(text)),
            (how, clause_places(text)),
        ):
            assert script.cut(text, rule) == [text[a:b] for a, b in places]


def test_weights_are_kept_in_half_precision(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("textcapsules.deploy.onnx.graph.SMALL", 256)
    classifier = TextClassifier.load(trained(place, "linear"), "cpu")
    export_onnx(classifier, tmp_path)
    model = onnx.load(tmp_path / "model.onnx")
    tensors = [each for each in model.graph.initializer if len(each.dims) == 2]
    types = {each.data_type for each in tensors if np.prod(each.dims) >= 256}
    assert types == {onnx.TensorProto.FLOAT16}
    content = (tmp_path / "model.onnx").read_bytes()
    for part in (Path(__file__).parents[3], Path.home(), place):
        assert str(part).encode() not in content


def test_heads_and_encoders_that_cannot_be_exported_are_one_line(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = trained(place, "lstm", model={"architecture": "lstm"})
    said = refusal("export", folder, "--out", tmp_path / "out")
    assert (
        "model must be a capsule network, encoder-linear or encoder-attention" in said
    )

    def unknown(*_: Any, **__: Any) -> None:
        raise RuntimeError("no such operation\nand more")

    states = load_encoder(str(place / "encoder")).states
    monkeypatch.setattr(torch.onnx, "export", unknown)
    with pytest.raises(ModelFolderError, match=r"got a 'mpnet' \(no such operation\)"):
        trace(Graph(), states)
