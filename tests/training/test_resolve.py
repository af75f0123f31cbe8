"""What auto becomes, for every architecture."""

from pathlib import Path

import pytest

from textcapsules.config import CHARACTERS, CLASSIC, RunConfig, preset
from textcapsules.data.example import Corpus
from textcapsules.data.load import load_corpus
from textcapsules.errors import ConfigError
from textcapsules.training.resolve import resolve
from toy import tiny_config, toy_file, toy_rows, write_csv


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return load_corpus(tiny_config(toy_file(tmp_path)).data)


def settled(corpus: Corpus, architecture: str, **sections) -> RunConfig:
    sections["model"] = {"architecture": architecture, **sections.get("model", {})}
    return resolve(RunConfig().replace(**sections), corpus)


@pytest.mark.parametrize(
    ("architecture", "train", "expected"),
    [
        ("capsule-a", {}, "margin"),
        ("capsule-b", {"task": "multi-label"}, "margin"),
        ("lstm", {}, "cross-entropy"),
        ("cnn", {"task": "multi-label"}, "binary-cross-entropy"),
        ("cnn", {"joined": 0.5}, "binary-cross-entropy"),
        ("tfidf-svm", {}, "cross-entropy"),
    ],
)
def test_loss_follows_architecture_and_task(
    corpus: Corpus, architecture: str, train: dict, expected: str
) -> None:
    assert settled(corpus, architecture, train=train).loss.loss == expected


def test_several_labels_in_training_make_the_loss_binary(tmp_path: Path) -> None:
    rows = [(text, f"{label}|x") for text, label in toy_rows(20)]
    path = write_csv(tmp_path / "several.csv", rows)
    config = tiny_config(path, data={"separator": "|"})
    corpus = load_corpus(config.data)
    train = {"task": "single-label"}  # the user's word, against the data
    assert settled(corpus, "cnn", train=train).loss.loss == "binary-cross-entropy"


@pytest.mark.parametrize(
    "loss", ["margin", "spread", "cross-entropy", "binary-cross-entropy", "entropy"]
)
@pytest.mark.parametrize("architecture", ["capsule-a", "bilstm"])
def test_chosen_loss_is_kept(corpus: Corpus, architecture: str, loss: str) -> None:
    assert settled(corpus, architecture, loss={"loss": loss}).loss.loss == loss


@pytest.mark.parametrize(("architecture", "length"), CHARACTERS.items())
def test_character_networks_read_their_own_length(
    corpus: Corpus, architecture: str, length: int
) -> None:
    text = settled(corpus, architecture, text={"vectors": "w.bin"}).text
    assert (text.rule, text.max_tokens, text.vectors) == ("characters", length, None)


@pytest.mark.parametrize("architecture", CHARACTERS)
def test_characters_read_may_be_asked_for(corpus: Corpus, architecture: str) -> None:
    found = settled(corpus, architecture, rival={"characters": 512})
    assert found.text.max_tokens == 512


@pytest.mark.parametrize("architecture", CLASSIC)
def test_classic_systems_read_words_without_vectors(
    corpus: Corpus, architecture: str
) -> None:
    text = settled(corpus, architecture, text={"vectors": "w.bin"}).text
    assert (text.rule, text.max_tokens, text.vectors) == ("words", 200, None)


@pytest.mark.parametrize(
    ("architecture", "rule"),
    [("cl-cnn", "words"), ("lstm", "characters"), ("fasttext", "characters")],
)
def test_rule_that_does_not_go_with_the_architecture_is_refused(
    corpus: Corpus, architecture: str, rule: str
) -> None:
    message = f"rule must be .* for the architecture {architecture}; got '{rule}'"
    with pytest.raises(ConfigError, match=message):
        settled(corpus, architecture, text={"rule": rule})


@pytest.mark.parametrize("architecture", ["cnn", "lstm", "capsule-a"])
def test_static_without_vectors_is_refused(corpus: Corpus, architecture: str) -> None:
    with pytest.raises(ConfigError, match="embeddings must be random or non-static"):
        settled(corpus, architecture, model={"embeddings": "static"})


@pytest.mark.parametrize(
    ("architecture", "labels", "train", "expected"),
    [
        ("capsule-b", "a", {"task": "multi-label"}, 1.0),
        ("cnn", "a", {"task": "multi-label"}, 1.0),
        ("capsule-b", "a", {}, 0.0),
        ("capsule-b", "a|x", {}, 0.0),  # the texts show it themselves
        ("tfidf-svm", "a", {"task": "multi-label"}, 0.0),
        ("capsule-b", "a", {"task": "multi-label", "joined": 0.0}, 0.0),
        ("capsule-b", "a", {"joined": 0.5}, 0.5),
    ],
)
def test_best_shows_a_network_joined_texts_where_several_labels_are_wanted(
    tmp_path: Path, architecture: str, labels: str, train: dict, expected: float
) -> None:
    rows = [(text, labels.replace("a", label)) for text, label in toy_rows(20)]
    path = write_csv(tmp_path / "rows.csv", rows)
    corpus = load_corpus(tiny_config(path, data={"separator": "|"}).data)
    model = {"architecture": architecture}
    run = preset("best").replace(model=model, train=train)
    assert resolve(run, corpus).train.joined == expected
    assert preset("best").train.joined is None
    assert preset("paper").train.joined == 0.0


@pytest.mark.parametrize(
    ("vectors", "asked", "expected"),
    [
        ("words.npz", None, 0.4),
        (None, None, 0.0),
        (None, 0.3, 0.3),
        ("words.npz", 0.0, 0.0),
    ],
)
def test_capsules_start_longer_with_word_vectors_from_a_file(
    corpus: Corpus, vectors: str | None, asked: float | None, expected: float
) -> None:
    run = preset("best").replace(
        text={"vectors": vectors}, train={"start_length": asked}
    )
    assert resolve(run, corpus).train.start_length == expected
    assert preset("best").train.start_length is None
    assert preset("paper").train.start_length == 0.0
