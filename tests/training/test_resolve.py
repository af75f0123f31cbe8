"""What auto becomes, for every architecture."""

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from textcapsules.base.errors import ConfigError
from textcapsules.config import CHARACTERS, CLASSIC, RunConfig, preset
from textcapsules.data.example import Corpus
from textcapsules.data.load import load_corpus
from textcapsules.training.resolve import resolve, resolve_epochs
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


def test_characters_are_read_by_no_encoder(corpus: Corpus) -> None:
    run = RunConfig().replace(
        model={"architecture": "cl-cnn"}, text={"encoder": "all-MiniLM-L6-v2"}
    )
    with pytest.raises(ConfigError, match="on an encoder; got 'cl-cnn'"):
        resolve(run, corpus)


@pytest.mark.parametrize("architecture", CHARACTERS)
def test_characters_read_may_be_asked_for(corpus: Corpus, architecture: str) -> None:
    found = settled(corpus, architecture, baseline={"characters": 512})
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
        ("capsule-b", "a", {"task": "multi-label"}, 0.0),
        ("cnn", "a", {"task": "multi-label"}, 0.0),
        ("capsule-b", "a", {}, 0.0),
        ("capsule-b", "a|x", {}, 0.0),
        ("tfidf-svm", "a", {"task": "multi-label"}, 0.0),
        ("capsule-b", "a", {"task": "multi-label", "joined": 1.0}, 1.0),
        ("tfidf-svm", "a", {"task": "multi-label", "joined": 1.0}, 1.0),
        ("capsule-b", "a", {"joined": 0.5}, 0.5),
    ],
)
def test_best_shows_joined_texts_only_where_they_are_asked_for(
    tmp_path: Path, architecture: str, labels: str, train: dict, expected: float
) -> None:
    rows = [(text, labels.replace("a", label)) for text, label in toy_rows(20)]
    path = write_csv(tmp_path / "rows.csv", rows)
    corpus = load_corpus(tiny_config(path, data={"separator": "|"}).data)
    model = {"architecture": architecture}
    run = preset("best").replace(model=model, train=train)
    assert resolve(run, corpus).train.joined == expected
    assert preset("best").train.joined == preset("paper").train.joined == 0.0


@pytest.mark.parametrize("vectors", ["words.npz", None])
@pytest.mark.parametrize("asked", [0.0, 0.3])
def test_capsules_start_as_drawn_unless_asked_otherwise(
    corpus: Corpus, vectors: str | None, asked: float
) -> None:
    assert preset("best").train.start_length == preset("paper").train.start_length == 0
    run = preset("best").replace(text={"vectors": vectors})
    assert resolve(run, corpus).train.start_length == 0.0
    run = run.replace(train={"start_length": asked})
    assert resolve(run, corpus).train.start_length == asked


@pytest.mark.parametrize(
    "sections",
    [
        {"text": {"encoder": None}},
        {"model": {"routing": "attention"}},
        {"model": {"average": "poses"}},
        {"model": {"architecture": "cnn"}},
    ],
)
def test_pieces_that_would_not_be_read_are_refused(
    corpus: Corpus, sections: dict
) -> None:
    run = preset("best").replace(text={"encoder": "some/encoder"})
    for size, is_refused in ((0, False), (32, True)):
        asked = run.replace(model={"piece_size": size}).replace(**sections)
        if is_refused:
            with pytest.raises(ConfigError, match=r"piece_size must be 0 .*got 32\."):
                resolve(asked, corpus)
        else:
            resolve(asked, corpus)


def test_other_heads_on_an_encoder_do_without_the_presets_pieces(
    corpus: Corpus,
) -> None:
    run = preset("encoder-frozen").replace(text={"encoder": "some/encoder"})
    resolve(run.replace(model={"architecture": "encoder-linear"}), corpus)


def test_no_number_is_no_longer_auto() -> None:
    with pytest.raises(
        ConfigError, match=r"start_length must be a finite number .*None"
    ):
        preset("best").replace(train={"start_length": None})


@pytest.mark.parametrize(
    ("source", "n_texts", "batch_size", "expected"),
    [
        ("mine.csv", 1, 25, 40),  # few texts: not even 40 passes make 800 steps
        ("mine.csv", 475, 25, 40),  # 19 steps a pass, of which 43 would be needed
        ("mine.csv", 500, 25, 40),  # 20 steps: 40 x 20 = 800
        ("mine.csv", 1_000, 25, 20),  # 40 steps: 20 x 40 = 800
        ("mine.csv", 1_000, 50, 40),  # larger batches, fewer steps
        ("tickets", 2_475, 25, 9),  # 99 steps: 9 x 99 = 891
        ("tickets", 2_500, 25, 8),  # 100 steps: 8 x 100 = 800
        ("mine.csv", 1_000_000, 25, 8),  # many
        # The records of benchmark corpora have more.
        ("trec", 925, 25, 40),  # 37 steps a pass, of which 41 would be needed
        ("trec", 1_000, 25, 38),  # 40 steps: 38 x 40 = 1,520
        ("trec", 3_100, 25, 13),  # 124 steps: 13 x 124 = 1,612
        ("trec", 3_125, 25, 12),  # 125 steps: 12 x 125 = 1,500
        ("trec", 1_000_000, 25, 12),
    ],
)
def test_few_texts_are_read_more_often(
    source: str, n_texts: int, batch_size: int, expected: int
) -> None:
    train = {"batch_size": batch_size}
    best = preset("best").replace(data={"source": source}, train=train)
    assert resolve_epochs(best, n_texts) == expected


@pytest.mark.parametrize(
    ("source", "least", "enough"), [("mine.csv", 8, 800), ("mr", 12, 1500)]
)
@given(n_texts=st.integers(1, 10**7), batch_size=st.integers(1, 1000))
def test_as_many_epochs_as_make_the_steps_and_not_one_more(
    source: str, least: int, enough: int, n_texts: int, batch_size: int
) -> None:
    train = {"batch_size": batch_size}
    best = preset("best").replace(data={"source": source}, train=train)
    epochs, n_steps = resolve_epochs(best, n_texts), math.ceil(n_texts / batch_size)
    assert least <= epochs <= 40
    assert epochs == 40 or epochs * n_steps >= enough
    assert epochs == least or (epochs - 1) * n_steps < enough


@pytest.mark.parametrize("epochs", [1, 3, 500])
def test_epochs_asked_for_are_kept(corpus: Corpus, epochs: int) -> None:
    run = preset("best").replace(train={"epochs": epochs})
    assert resolve_epochs(run, 10) == resolve_epochs(run, 10**6) == epochs
    assert resolve(run, corpus).train.epochs == epochs
    assert resolve(preset("paper"), corpus).train.epochs == 20


def test_epochs_follow_from_the_training_texts(corpus: Corpus) -> None:
    assert preset("best").train.epochs is None
    run = preset("best").replace(train={"batch_size": 1})
    assert len(corpus.train) == 54  # of 60
    assert resolve(run, corpus).train.epochs == 15  # 15 x 54 = 810


def test_a_network_on_an_encoder_reads_the_texts_fewer_times() -> None:
    run = preset("encoder-frozen").replace(text={"encoder": "tiny"})
    epochs = [resolve_epochs(run, n_texts) for n_texts in (100, 1_000, 4_000, 10_000)]
    assert epochs == [40, 23, 6, 6]
