"""Runs on an encoder whose word pieces have vectors and networks of their own."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from run_folders import folder_content
from textcapsules.base.errors import ModelFolderError
from textcapsules.config import RunConfig, preset
from textcapsules.model.capsnet import CapsuleNetwork
from textcapsules.model.classifier import TextClassifier, encoder_of
from textcapsules.reasons import explain
from textcapsules.text.encoder import EncoderEmbedding
from textcapsules.text.encoder_training import LearningEncoder
from textcapsules.text.pieces import FIRST_PIECE
from textcapsules.training.optimise import parameter_groups
from textcapsules.training.prepare import prepare
from textcapsules.training.run import resume, train
from tiny_encoder import write_encoder
from toy import TINY_TRAIN, run_cli, toy_file, without_sums

TEXTS = [
    "My cat purrs at the kitten. The dog barks!",
    "the bird sings",
    "",
    "\u2603",
]
SMALL = {"filters": 4, "capsule_types": 2, "capsule_size": 4, "piece_size": 6}
ROWS, VECTORS = "embedding.pieces.rows", "embedding.pieces.vectors.weight"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pieces")
    write_encoder(folder / "encoder")
    toy_file(folder, 240)
    return folder


def options(place: Path, **sections: dict[str, Any]) -> RunConfig:
    config = preset("encoder-frozen").replace(
        data={"source": str(place / "toy.csv")},
        text={"encoder": str(place / "encoder")},
        model=SMALL,
        train={**TINY_TRAIN, "epochs": 2, "task": "multi-label", "batch_size": 20},
    )
    return config.replace(**sections)


@pytest.fixture(scope="module")
def model(place: Path) -> Path:
    train(options(place), place / "model", test_reasons=False)
    return place / "model"


def network_of(classifier: TextClassifier) -> CapsuleNetwork:
    assert isinstance(classifier.network, CapsuleNetwork)
    return classifier.network


def copied(model: Path, folder: Path) -> Path:
    """Return a copy of a model's folder whose files may be changed."""
    folder.mkdir()
    for file in model.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    return without_sums(folder)


def test_pieces_of_the_training_texts_have_vectors(place: Path, model: Path) -> None:
    tensors = load_file(model / "model.safetensors")
    config = options(place)
    prepared = prepare(config)
    classifier = TextClassifier.load(model, "cpu")
    n_pieces = classifier.tokenizer.n_pieces  # type: ignore[union-attr]
    known = {
        (int(piece) - FIRST_PIECE) % n_pieces
        for ids in prepared.train.documents
        for piece in ids[ids >= FIRST_PIECE]
    }
    assert set(tensors[ROWS].nonzero().flatten().tolist()) == known
    assert 0 < len(known) < n_pieces
    assert tensors[VECTORS].shape == (len(known) + 1, 6)
    assert not tensors[VECTORS][0].any()
    assert tensors[VECTORS][1:].any(1).all()


def test_record_and_network_have_the_same_shares(model: Path) -> None:
    classifier = TextClassifier.load(model, "cpu")
    network, shares = network_of(classifier), classifier.record["views"]
    assert set(shares) == {"states", "pieces"}
    assert sum(shares.values()) == pytest.approx(1)
    first, *others = network.branch_shares()  # n-grams of states are side by side
    assert first == pytest.approx(shares["states"], abs=1e-4)
    assert sum(others) == pytest.approx(shares["pieces"], abs=1e-4)
    assert len(others) == 2


def test_a_model_has_the_scores_it_was_saved_with(place: Path, tmp_path: Path) -> None:
    trained = train(options(place), tmp_path / "model", test_reasons=False)
    network = network_of(trained)
    assert network.shares is not None
    network.shares.copy_(torch.tensor([0.2, 0.5, 0.3]))
    trained.save(tmp_path / "again")
    expected = trained.scores(TEXTS)
    loaded = TextClassifier.load(tmp_path / "again", "cpu")
    assert np.array_equal(loaded.scores(TEXTS), expected)
    assert expected[:2].all() and not expected[2:].any()


def test_an_interrupted_run_ends_as_the_whole(place: Path, tmp_path: Path) -> None:
    def stop(record: dict[str, Any]) -> None:
        if record["epoch"] == 2:
            raise KeyError

    config = options(place, train={"epochs": 3, "average_weights": 0.9})
    train(config, tmp_path / "whole")
    with pytest.raises(KeyError):
        train(config, tmp_path / "cut", on_epoch=stop)
    torch.manual_seed(7)
    resume(tmp_path / "cut")
    assert folder_content(tmp_path / "cut") == folder_content(tmp_path / "whole")


@pytest.mark.parametrize("missing", [ROWS, VECTORS, "shares"])
def test_a_folder_without_a_part_is_refused(
    model: Path, tmp_path: Path, missing: str
) -> None:
    folder = copied(model, tmp_path / "model")
    tensors = load_file(folder / "model.safetensors")
    del tensors[missing]
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(ModelFolderError) as error:
        TextClassifier.load(folder, "cpu")
    (line,) = str(error.value).splitlines()
    assert "must hold the weights that config.json describes" in line
    assert missing in line
    ran = run_cli("predict", folder, "a cat")
    assert (ran.code, len(ran.err.splitlines())) == (2, 1)


def test_a_folder_from_before_pieces_had_vectors_loads_as_it_was(
    place: Path, tmp_path: Path
) -> None:
    alone = {"model": {"piece_size": 0}, "loss": {"per_branch": False}}
    config = options(place, **alone, train={"joined": 0.0})
    expected = train(config, tmp_path / "model", test_reasons=False).scores(TEXTS)
    folder = without_sums(tmp_path / "model")
    values = json.loads((folder / "config.json").read_text())
    del values["model"]["piece_size"]
    (folder / "config.json").write_text(json.dumps(values))
    loaded = TextClassifier.load(folder, "cpu")
    assert loaded.config.model.piece_size == 0
    assert network_of(loaded).shares is None
    assert "views" not in loaded.record
    assert np.array_equal(loaded.scores(TEXTS), expected)


@pytest.mark.parametrize("way", ["light", "tuned"])
def test_pieces_learn_beside_an_encoder_that_learns(
    place: Path, tmp_path: Path, way: str
) -> None:
    how = {"encoder_training": way, "encoder_layers": 1, "encoder_rate": 1e-3}
    config = options(place, train={**how, "epochs": 1})
    fresh = prepare(config).network
    assert isinstance(fresh, CapsuleNetwork)
    assert isinstance(fresh.embedding, LearningEncoder)
    assert fresh.embedding.pieces is not None
    before = fresh.embedding.pieces.vectors.weight
    rates = {
        id(parameter): group["share"]
        for group in parameter_groups(fresh, config)
        for parameter in group["params"]
    }
    assert rates[id(before)] == 1  # the capsules' rate, not the encoder's
    frozen = fresh.embedding.frozen()
    assert type(frozen) is EncoderEmbedding
    assert frozen.pieces is fresh.embedding.pieces
    trained = train(config, tmp_path / "model", test_reasons=False)
    embedding = encoder_of(trained.network)
    assert type(embedding) is EncoderEmbedding and embedding.pieces is not None
    learnt = embedding.pieces.vectors.weight
    assert (learnt[1:] != before[1:]).any(1).sum() > 0.9 * (len(learnt) - 1)
    tensors = load_file(tmp_path / "model" / "model.safetensors")
    assert torch.equal(tensors[VECTORS], learnt.detach())
    loaded = TextClassifier.load(tmp_path / "model", "cpu")
    np.testing.assert_allclose(loaded.scores(TEXTS), trained.scores(TEXTS), atol=1e-5)


@pytest.mark.parametrize("method", ["contributions", "couplings", "erasure"])
def test_reasons_are_phrases_of_the_text(model: Path, method: str) -> None:
    explanation = explain(TextClassifier.load(model, "cpu"), TEXTS[0], method=method)
    phrases = [phrase for label in explanation.labels for phrase in label.phrases]
    assert phrases
    for phrase in phrases:
        assert phrase.text == TEXTS[0][phrase.start : phrase.end]
