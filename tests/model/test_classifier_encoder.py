"""Models that stand on a pretrained encoder: trained, saved, explained, refused."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from textcapsules.base.errors import ConfigError, TextCapsulesError
from textcapsules.config import RunConfig, preset
from textcapsules.deploy.hub import without_paths
from textcapsules.model.classifier import TextClassifier
from textcapsules.reasons import explain
from textcapsules.reasons.attributions import keep_tokens
from textcapsules.reasons.routing_inspection import connections
from textcapsules.text.pieces import split_sentences
from textcapsules.training.run import resume, train
from tiny_encoder import write_encoder
from toy import TINY_TRAIN, toy_file, toy_rows

TEXT = "My cat purrs at the kitten. The dog barks!"
SMALL = {"filters": 8, "capsule_types": 2, "capsule_size": 4}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("on-encoder")
    write_encoder(folder / "encoder")
    toy_file(folder)
    return folder


def options(place: Path, **sections: dict[str, Any]) -> RunConfig:
    config = preset("best").replace(
        data={"source": str(next(place.glob("*.csv")))},
        text={"encoder": str(place / "encoder")},
        model=SMALL,
        train={**TINY_TRAIN, "epochs": 2, "task": "multi-label"},
    )
    return config.replace(**sections)


@pytest.fixture(scope="module")
def model(place: Path) -> Path:
    train(options(place), place / "model")
    return place / "model"


def test_only_the_network_above_is_trained(place: Path, model: Path) -> None:
    classifier = TextClassifier.load(model, "cpu")
    names = list(classifier.network.state_dict())  # type: ignore[union-attr]
    assert not any("encoder" in name for name in names)
    facts = classifier.record["vectors"]
    assert facts["encoder"] == "encoder"
    assert classifier.config.model.embedding_size == 16


def test_folder_is_enough_without_the_encoders(place: Path, tmp_path: Path) -> None:
    other = write_encoder(tmp_path / "gone")
    trained = train(options(place, text={"encoder": str(other)}), tmp_path / "model")
    expected = trained.scores([TEXT, "dog"])
    for file in other.iterdir():
        file.unlink()
    moved = (tmp_path / "model").rename(tmp_path / "moved")
    assert np.array_equal(
        TextClassifier.load(moved, "cpu").scores([TEXT, "dog"]), expected
    )


def test_scores_are_the_same_alone_and_among_others(model: Path) -> None:
    classifier = TextClassifier.load(model, "cpu")
    alone = classifier.scores([TEXT])[0]
    among = classifier.scores(["bird " * 70, TEXT, "", "cat."])
    np.testing.assert_allclose(among[1], alone, atol=1e-3)
    assert not among[2].any()


def test_unknown_words_are_no_evidence(model: Path) -> None:
    (prediction,) = TextClassifier.load(model, "cpu").predict(["☃ ☂ 漢"])
    assert prediction.labels == ()
    assert (prediction.known, prediction.words) == (0, 3)


@pytest.mark.parametrize(
    "method", ["couplings", "contributions", "sampled", "gradient", "erasure"]
)
def test_phrases_are_whole_words_of_the_text(model: Path, method: str) -> None:
    explanation = explain(TextClassifier.load(model, "cpu"), TEXT, method=method)
    phrases = [phrase for label in explanation.labels for phrase in label.phrases]
    assert phrases
    for phrase in phrases:
        assert phrase.text == TEXT[phrase.start : phrase.end]
        before, after = TEXT[: phrase.start][-1:], TEXT[phrase.end :][:1]
        assert not (before.isalnum() and phrase.text[0].isalnum())
        assert not (after.isalnum() and phrase.text[-1].isalnum())


def test_ngrams_are_named_by_whole_words(model: Path) -> None:
    classifier = TextClassifier.load(model, "cpu")
    for phrase in connections(classifier, TEXT).phrases:
        first, last = r"\b" * phrase[0].isalnum(), r"\b" * phrase[-1].isalnum()
        assert re.search(f"{first}{re.escape(phrase)}{last}", TEXT), phrase


def test_sentences_stay_apart_where_tokens_are_left_out(model: Path) -> None:
    classifier = TextClassifier.load(model, "cpu")
    (ids,) = classifier.encode([TEXT])
    n_first = len(classifier.encode([TEXT.split(". ")[0] + "."])[0])
    kept = np.arange(len(ids)) != n_first  # without the second sentence's first piece
    n_pieces = classifier.tokenizer.n_pieces  # type: ignore[union-attr]
    rows = keep_tokens(classifier.network, ids, kept)
    assert len(split_sentences(rows.astype(np.int64), n_pieces)) == 2
    assert len(split_sentences(ids[kept].astype(np.int64), n_pieces)) == 1


def test_an_interrupted_run_ends_with_the_same_weights(
    place: Path, tmp_path: Path
) -> None:
    def stop(record: dict[str, Any]) -> None:
        raise KeyError("stopped")

    config = options(place, train={"epochs": 3})
    whole = train(config, tmp_path / "whole")
    with pytest.raises(KeyError, match="stopped"):
        train(config, tmp_path / "broken", on_epoch=stop)
    again = resume(tmp_path / "broken")
    states = (each.network.state_dict() for each in (whole, again))  # type: ignore[union-attr]
    for ours, theirs in zip(*(state.values() for state in states), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("file", ["encoder.json", "encoder.safetensors"])
def test_a_changed_encoder_is_refused(place: Path, tmp_path: Path, file: str) -> None:
    train(options(place, train={"epochs": 1}), tmp_path / "model")
    path = tmp_path / "model" / file
    content = bytearray(path.read_bytes())
    content[-2] ^= 1
    path.write_bytes(content)
    with pytest.raises(TextCapsulesError, match=file.replace(".", r"\.")):
        TextClassifier.load(tmp_path / "model", "cpu")


@pytest.mark.parametrize(
    "architecture", ["cnn", "bilstm", "encoder-linear", "encoder-attention"]
)
def test_baselines_stand_on_it_too(
    place: Path, tmp_path: Path, architecture: str
) -> None:
    config = options(place, model={"architecture": architecture}, train={"epochs": 1})
    classifier = train(config, tmp_path / "model")
    loaded = TextClassifier.load(tmp_path / "model", "cpu")
    assert np.array_equal(loaded.scores([TEXT]), classifier.scores([TEXT]))


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"text": {"vectors": "some.npz"}}, "vectors must be left out"),
        ({"model": {"architecture": "tree-lstm"}}, "architecture must be one of"),
        ({"model": {"architecture": "tfidf-svm"}}, "architecture must be one of"),
        (
            {"text": {"encoder": None}, "model": {"architecture": "encoder-linear"}},
            "encoder must be given for the architecture encoder-linear",
        ),
    ],
)
def test_what_cannot_stand_on_an_encoder_is_refused(
    place: Path, tmp_path: Path, sections: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        train(options(place, **sections), tmp_path / "model")


def test_the_record_holds_no_path(place: Path, model: Path) -> None:
    record = json.loads((model / "training.json").read_text())
    assert str(place) not in json.dumps(record["vectors"])


def test_a_shared_model_names_the_encoder_without_its_path(
    place: Path, model: Path
) -> None:
    shared = without_paths(TextClassifier.load(model, "cpu"))
    assert shared.config.text.encoder == "encoder"


def test_text_outside_gets_no_label_on_pieces_either(
    place: Path, tmp_path: Path
) -> None:
    config = options(
        place,
        data={"source": str(toy_file(tmp_path, 330))},
        model={**SMALL, "architecture": "encoder-linear"},
        train={"epochs": 1, "batch_size": 100},
    )
    train(config, tmp_path / "model")
    classifier = TextClassifier.load(tmp_path / "model", "cpu")
    assert classifier.rule is not None
    assert 2 * len(classifier.rule.surprisal) == classifier.tokenizer.n_words + 2
    noise = "Zq xw vk. Jy qx, kz wv! Xj qk zy."
    texts = [toy_rows(1, seed=9)[0][0], noise]
    inside, outside = classifier.predict(texts, threshold=0.0)
    assert not inside.outside and inside.labels
    assert outside.outside and not outside.labels
    assert classifier.predict(noise, threshold=0.0, refuse=False).labels
