"""Words outside the vocabulary: dropped before the network, so they never vote."""

import random
from pathlib import Path

import numpy as np
import pytest

from run_folders import weights
from textcapsules.base.errors import collect_warnings
from textcapsules.config import RunConfig, preset
from textcapsules.deploy.onnx.export import export_onnx
from textcapsules.model.classifier import TextClassifier
from textcapsules.reasons.texts import explain
from textcapsules.training.prepare import prepare
from textcapsules.training.run import train
from toy import FILLERS, TOPICS, tiny_config, toy_file, toy_rows

pytestmark = pytest.mark.slow


def several(folder: Path, unknown: str) -> RunConfig:
    """Return a tiny run that is to give several labels."""
    options = {"task": "multi-label", "joined": 1.0, "select": "last"}
    model = {"conv_capsules": False, "capsule_size": 8, "embedding_size": 16}
    text, source = {"unknown": unknown}, toy_file(folder, n_rows=120)
    return tiny_config(
        source, text=text, model=model, train={**options, "learning_rate": 0.02}
    )


@pytest.fixture(scope="module")
def dropping(tmp_path_factory) -> TextClassifier:
    folder = tmp_path_factory.mktemp("dropping")
    return train(several(folder, "drop"), folder / "model")


def invented_texts(n_texts: int, seed: int) -> list[str]:
    """Return invented words, and up to three fillers that the texts do have."""
    draw = random.Random(seed)
    texts = []
    for _ in range(n_texts):
        words = [
            "x" + "".join(draw.choices("bdfgklmnprstvwz", k=draw.randint(2, 7)))
            for _ in range(draw.randint(3, 30))
        ]
        for filler in draw.choices(FILLERS, k=draw.randint(0, 3)):
            words.insert(draw.randint(0, len(words)), filler)
        texts.append(" ".join(words))
    return texts


def labelled(classifier: TextClassifier, texts: list[str]) -> int:
    return sum(bool(prediction.labels) for prediction in classifier.predict(texts))


def test_invented_words_get_no_label(dropping, tmp_path):
    texts = invented_texts(300, seed=5)
    assert labelled(dropping, texts) == 0
    letters = [" ".join(random.Random(n).choices("bcdefghjk", k=9)) for n in range(50)]
    assert labelled(dropping, [f"a {text}" for text in letters]) == 0
    keeping = train(several(tmp_path, "keep"), tmp_path / "model")
    assert labelled(keeping, texts) > 0  # what this is about


def test_real_texts_keep_their_labels(dropping):
    rows = toy_rows(90, seed=9)
    predictions = dropping.predict([text for text, _ in rows])
    pairs = zip(predictions, rows, strict=True)
    assert np.mean([got.labels == (topic,) for got, (_, topic) in pairs]) > 0.9
    both = " ".join(TOPICS["birds"] + TOPICS["dogs"])
    assert set(dropping.predict([both])[0].labels) == {"birds", "dogs"}


def test_a_text_scores_as_without_its_unknown_words(dropping):
    texts = [text for text, _ in toy_rows(30, seed=3)]
    mixed = [" zzz ".join(text.split()) for text in texts]
    assert np.array_equal(dropping.scores(mixed), dropping.scores(texts))
    assert not dropping.scores(["zzz qqq", ""]).any()
    (one,) = dropping.predict(["my zzz cat"])
    assert (one.known, one.words) == (2, 3)


def test_weights_are_the_same_where_every_training_word_is_known(tmp_path):
    for unknown in ("drop", "keep"):
        train(several(tmp_path, unknown), tmp_path / unknown)
    assert weights(tmp_path / "drop") == weights(tmp_path / "keep")


def test_explanations_leave_unknown_words_out(dropping):
    text = "my zzz kitten qqq purr"
    explanation = explain(dropping, text)
    assert [token.text for token in explanation.tokens] == ["my", "kitten", "purr"]
    assert [text[t.start : t.end] for t in explanation.tokens] == [
        "my",
        "kitten",
        "purr",
    ]
    assert (explanation.known, explanation.words) == (3, 5)
    scores = [label.score for label in explanation.labels]
    assert scores == pytest.approx(dropping.scores([text])[0].tolist(), abs=1e-6)


def test_misspelt_words_are_read_as_the_words_that_are_meant(dropping, tmp_path):
    config = dropping.config.replace(text={"unknown": "nearest"})
    nearest = TextClassifier(
        config, dropping.tokenizer, dropping.labels, dropping.network
    )
    right, typed = "my kitten zzz with a feather", "my Kiten zzz with a faether"
    assert np.array_equal(nearest.scores([typed]), dropping.scores([right]))
    assert not np.array_equal(dropping.scores([typed]), dropping.scores([right]))
    explanation = explain(nearest, typed)
    shown = [typed[t.start : t.end] for t in explanation.tokens]
    assert shown == ["my", "Kiten", "a", "faether"]
    phrases = [p.text for label in explanation.labels for p in label.phrases]
    assert any("Kiten" in phrase for phrase in phrases)
    assert not any("kitten" in phrase for phrase in phrases)
    assert (explanation.known, explanation.words) == (4, 6)
    (one,) = nearest.predict([typed])
    assert (one.known, one.words) == (4, 6)
    with collect_warnings() as warnings:
        facts = export_onnx(nearest, tmp_path)
    assert facts["largest_difference"] <= 1e-5
    assert any("drops misspelt words" in message for message in warnings)


def test_exported_model_drops_them_too(dropping, tmp_path):
    facts = export_onnx(dropping, tmp_path)  # compares texts with unknown words
    assert facts["largest_difference"] <= 1e-5


def test_best_drops_unknown_words_where_words_are_read(tmp_path):
    source = toy_file(tmp_path)
    assert preset("best").text.unknown == "drop"
    for name in ("paper", "released", "sabour"):
        assert preset(name).text.unknown == "keep"
    model = {"architecture": "cl-cnn"}
    config = tiny_config(source, model=model, text={"unknown": "drop"})
    assert prepare(config).config.text.unknown == "keep"
