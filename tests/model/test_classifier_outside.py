"""A model that refuses: no label outside its topics, in memory and in its folder."""

import json
import shutil

import numpy as np
import pytest

from textcapsules.base.errors import ModelFolderError
from textcapsules.model.classifier import TextClassifier, pack, unpack
from textcapsules.text.outside import OUTSIDE_FILE
from toy import OFF_TOPIC, TOPICAL, refusing_model, without_sums


@pytest.fixture(scope="module")
def classifier():
    return TextClassifier.load(refusing_model())


@pytest.fixture
def folder(tmp_path):
    return shutil.copytree(refusing_model(), tmp_path / "model")


@pytest.mark.parametrize("decision", [{"threshold": 0.01}, {"multi_label": False}])
def test_text_outside_gets_no_label_and_its_scores(classifier, decision):
    texts = [TOPICAL, OFF_TOPIC, ""]
    inside, outside, empty = classifier.predict(texts, **decision)
    assert not inside.outside
    assert inside.labels[0] == "cats"
    assert outside.outside and outside.labels == ()
    assert np.array_equal(outside.scores, classifier.scores(texts)[1])
    assert outside.scores.max() > 0
    assert not empty.outside and empty.labels == ()  # nothing to be outside with


def test_refusal_can_be_left_out(classifier):
    outside = classifier.predict(OFF_TOPIC, multi_label=False, refuse=False)
    assert outside.outside  # it still says so
    assert len(outside.labels) == 1


def test_a_low_threshold_does_not_bring_labels_back(classifier):
    assert classifier.predict(OFF_TOPIC, threshold=0.0).labels == ()
    assert len(classifier.predict(OFF_TOPIC, threshold=0.0, refuse=False).labels) == 3


def test_decide_refuses_the_rows_it_is_told_to(classifier):
    scores = np.array([[0.9, 0.1, 0.1]] * 2, np.float32)
    decided = classifier.decide(scores, outside=np.array([False, True]))
    assert decided.any(1).tolist() == [True, False]
    assert classifier.decide(scores).any(1).tolist() == [True, True]


def test_text_of_any_length_is_refused(classifier):
    texts = [OFF_TOPIC, " ".join([OFF_TOPIC] * 20)]
    assert [each.outside for each in classifier.predict(texts)] == [True, True]


def test_notebook_says_why_there_is_no_label(classifier):
    assert "outside the topics" in classifier.predict(OFF_TOPIC)._repr_html_()
    assert "outside" not in classifier.predict("")._repr_html_()


def test_explanation_says_so(classifier):
    inside, outside = classifier.explain([TOPICAL, OFF_TOPIC])
    assert (inside.outside, outside.outside) == (False, True)
    assert outside.predicted == () and inside.predicted
    assert not any(label.predicted for label in outside.labels)
    assert outside.to_dict()["outside"] is True
    again = classifier.explain(OFF_TOPIC, multi_label=False, refuse=False)
    assert again.outside and len(again.predicted) == 1


def test_folder_and_bytes_keep_the_rule(classifier, tmp_path):
    classifier.save(tmp_path / "again")
    for again in (
        TextClassifier.load(tmp_path / "again"),
        unpack(pack(classifier), "cpu"),
    ):
        assert again.rule is not None
        assert again.rule.to_dict() == classifier.rule.to_dict()
        assert np.array_equal(again.rule.surprisal, classifier.rule.surprisal)


def test_folder_of_an_earlier_version_refuses_nothing(folder):
    (folder / OUTSIDE_FILE).unlink()
    config = json.loads((folder / "config.json").read_text())
    del config["train"]["refuse"]
    (folder / "config.json").write_text(json.dumps(config))
    old = TextClassifier.load(without_sums(folder))
    assert old.rule is None and not old.config.train.refuse
    assert not old.predict(OFF_TOPIC, multi_label=False).outside
    assert old.predict(OFF_TOPIC, multi_label=False).labels


def test_file_that_has_gone_or_changed_is_one_error(folder):
    path = folder / OUTSIDE_FILE
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))  # a surprisal, by one
    with pytest.raises(ModelFolderError, match="SHA-256 differs"):
        TextClassifier.load(folder)
    path.unlink()
    with pytest.raises(ModelFolderError, match="No such file"):
        TextClassifier.load(folder)


def test_file_is_small(classifier):
    assert (refusing_model() / OUTSIDE_FILE).stat().st_size < 1000
    assert classifier.rule.surprisal.nbytes == classifier.tokenizer.n_words
