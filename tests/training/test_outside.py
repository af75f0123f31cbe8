"""The rule that training gives a model: from texts with a label, for every system."""

import json

import numpy as np
import pytest

from textcapsules.data.example import Corpus, Example
from textcapsules.model.classifier import TextClassifier
from textcapsules.text.outside import OUTSIDE_FILE
from textcapsules.text.vocabulary import TextTokenizer
from textcapsules.training.outside import outside_rule
from textcapsules.training.run import train
from toy import (
    OFF_TOPIC,
    TOPICAL,
    refusing_model,
    tiny_config,
    toy_file,
    toy_rows,
    trained_model,
)


def corpus_of(train: list[Example], dev: list[Example]) -> Corpus:
    return Corpus(
        "toy", ("birds", "cats", "dogs"), train, dev, [], "multi-label", "words", {}
    )


def examples(n: int, seed: int) -> list[Example]:
    return [Example(text, (label,)) for text, label in toy_rows(n, seed)]


def test_text_without_a_label_teaches_nothing():
    known, dev = examples(90, 1), examples(40, 2)
    tokenizer = TextTokenizer.train([e.text for e in known] + ["zzz qqq"], rule="words")
    config = tiny_config("toy")
    plain = outside_rule(config, tokenizer, corpus_of(known, dev))
    noise = [Example("zzz qqq zzz", ())] * 50
    more = outside_rule(config, tokenizer, corpus_of(known + noise, dev + noise))
    assert plain is not None and more is not None
    assert np.array_equal(plain.surprisal, more.surprisal)
    assert (plain.limit, plain.figures) == (more.limit, more.figures)


def test_training_keeps_the_rule_and_its_figures():
    folder = refusing_model()
    classifier = TextClassifier.load(folder)
    assert classifier.rule is not None
    assert classifier.record["outside"] == classifier.rule.to_dict()
    assert classifier.rule.figures["texts"] == 36  # a tenth of 360
    record = json.loads((folder / "training.json").read_text())
    assert OUTSIDE_FILE in record["sha256"]


def test_texts_that_repeat_themselves_are_warned_of(tmp_path):
    """Of other wordings such a limit knows nothing: right texts would be refused."""
    config = tiny_config("toy", train={"refuse": True})
    warned = "hardly a word"
    known, dev = examples(300, 1), examples(60, 2)
    record = train(config, tmp_path / "a", corpus=corpus_of(known, dev)).record
    assert any(warned in message for message in record["warnings"])
    assert record["outside"]["new_words"] < 0.005
    dev = [each._replace(text=f"{each.text} new{n}") for n, each in enumerate(dev)]
    record = train(config, tmp_path / "b", corpus=corpus_of(known, dev)).record
    assert not any(warned in message for message in record["warnings"])
    assert record["outside"]["new_words"] > 0.05


def test_few_dev_texts_refuse_nothing():
    classifier = TextClassifier.load(trained_model())
    assert not (trained_model() / OUTSIDE_FILE).exists()
    assert classifier.rule is None and classifier.record["outside"] is None


@pytest.mark.parametrize(
    "model",
    [
        {"architecture": "cnn"},
        {"architecture": "bilstm"},
        {"architecture": "tfidf-lr"},
        {"architecture": "tfidf-svm"},
        {"architecture": "fasttext"},
    ],
    ids=lambda model: model["architecture"],
)
def test_every_system_gets_it(tmp_path, model):
    config = tiny_config(
        toy_file(tmp_path, 330),
        model=model,
        baseline={"feature_maps": 2, "hidden_size": 2},
        train={"epochs": 1, "batch_size": 100},
    )
    train(config, tmp_path / "model")
    classifier = TextClassifier.load(tmp_path / "model")
    inside, outside, plain = (
        classifier.predict(TOPICAL),
        classifier.predict(OFF_TOPIC),
        classifier.predict(OFF_TOPIC, refuse=False),
    )
    assert not inside.outside and inside.labels
    assert outside.outside and not outside.labels and outside.scores.any()
    assert plain.outside and plain.labels


def test_option_leaves_it_out(tmp_path):
    folder = tmp_path / "model"
    small = {"epochs": 1, "batch_size": 100}
    config = tiny_config(toy_file(tmp_path, 330), train=small)
    assert train(config, folder).rule is not None
    without = config.replace(train={"refuse": False})
    assert train(without, folder, overwrite=True).rule is None
    assert not (folder / OUTSIDE_FILE).exists()
    assert not TextClassifier.load(folder).predict(OFF_TOPIC).outside
