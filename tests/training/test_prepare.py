from pathlib import Path

import numpy as np
import pytest
from torch import nn

from textcapsules.base.errors import ConfigError, DataError
from textcapsules.config import RunConfig
from textcapsules.data.example import Example
from textcapsules.text.encode import Encoder
from textcapsules.text.vocabulary import TextTokenizer
from textcapsules.training.prepare import encode_examples, prepare, target_matrix
from toy import tiny_config, toy_file, toy_rows, write_csv


def test_target_matrix_marks_each_label_once():
    examples = [Example("x", ("b",)), Example("y", ("a", "c"))]
    assert target_matrix(examples, ("a", "b", "c")).tolist() == [[0, 1, 0], [1, 0, 1]]


def test_label_never_seen_is_told_with_its_row():
    examples = [Example("x", ("a",)), Example("y", ("z",))]
    with pytest.raises(
        DataError, match=r"label must be one of a, b; got 'z' in row 2 of dev.csv"
    ):
        target_matrix(examples, ("a", "b"), "dev.csv")


def test_several_labels_in_a_cell_are_told_with_their_separator():
    with pytest.raises(DataError, match="one cell need --separator ';'"):
        target_matrix([Example("x", ("a; b",))], ["a", "b"])
    with pytest.raises(DataError, match=r"one cell need --separator\."):
        target_matrix([Example("x", ("fish, fresh",))], ["a", "b"])


def test_long_text_is_cut_and_unknown_words_alone_are_nothing():
    tokenizer = TextTokenizer.train(["a b c d e"], rule="words")
    examples = [Example("a b c d e", ("x",)), Example("zzz", ("x",))]
    encoder = Encoder(RunConfig().replace(text={"max_tokens": 3}), tokenizer)
    (documents, _), _ = encode_examples(encoder, examples, ("x", "y"))
    assert [len(ids) for ids in documents] == [3, 0]


def test_prepare_is_the_same_twice(tmp_path: Path):
    config = tiny_config(toy_file(tmp_path))
    one, two = prepare(config), prepare(config)
    assert one.facts == two.facts
    assert all(map(np.array_equal, one.train.documents, two.train.documents))
    assert isinstance(one.network, nn.Module)
    assert isinstance(two.network, nn.Module)
    states = zip(one.network.parameters(), two.network.parameters(), strict=True)
    assert all(bool((a == b).all()) for a, b in states)


def test_prepare_settles_every_auto(tmp_path: Path):
    config = prepare(tiny_config(toy_file(tmp_path))).config
    assert config.text.rule == "words"
    assert config.train.task == "single-label"
    assert config.train.select == "accuracy"
    assert config.loss.loss == "margin"
    assert config.model.embeddings == "random"


def test_one_label_is_refused(tmp_path: Path):
    rows = [(text, "only") for text, _ in toy_rows(10)]
    with pytest.raises(DataError, match=r"at least two labels.*got \['only'\]"):
        prepare(tiny_config(write_csv(tmp_path / "one.csv", rows)))


def test_one_text_cannot_be_held_out(tmp_path: Path):
    path = write_csv(tmp_path / "one.csv", [("a text", "x|y")])
    with pytest.raises(DataError, match=r"at least 2 texts to hold one out.*got 1"):
        prepare(tiny_config(path, data={"separator": "|"}))


def test_dev_label_never_seen_names_the_dev_texts(tmp_path: Path):
    dev = write_csv(tmp_path / "dev.csv", [("my cat", "cats"), ("a cow", "cows")])
    config = tiny_config(toy_file(tmp_path), data={"dev": str(dev)})
    with pytest.raises(DataError, match=r"got 'cows' in row 2 of .*dev.csv"):
        prepare(config)


def test_impossible_sizes_are_refused(tmp_path: Path):
    # K1 = 3 and K2 = 3 need five tokens
    path = toy_file(tmp_path)
    with pytest.raises(ConfigError, match=r"max_tokens must be at least 5.*got 4"):
        prepare(tiny_config(path, text={"max_tokens": 4}))
    assert prepare(tiny_config(path, text={"max_tokens": 5})).config


def test_no_known_word_at_all_is_refused(tmp_path: Path):
    path = toy_file(tmp_path)
    with pytest.raises(DataError, match="must have words"):
        prepare(tiny_config(path, text={"min_count": 100_000}))
