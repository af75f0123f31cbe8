import errno
import json
import math
import shutil
import struct
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from safetensors.torch import load_file, save_file

from pages import Page
from textcapsules.base.errors import (
    ConfigError,
    InputError,
    ModelFolderError,
    WriteError,
)
from textcapsules.config import preset
from textcapsules.data.example import Example
from textcapsules.inference.estimator import CapsuleClassifier
from textcapsules.inference.evaluate import evaluate
from textcapsules.model.classifier import (
    MODEL_FILES,
    Labels,
    Prediction,
    Predictions,
    TextClassifier,
    pick_device,
)
from textcapsules.reasons.texts import explain
from textcapsules.training.run import train
from toy import (
    TOPICS,
    model_copy,
    spawn,
    tiny_config,
    toy_file,
    trained_model,
    without_sums,
)

TEXTS = ["my cat purr", "", "zzz qqq", "a dog bark and a bird sing " * 60]


def test_loaded_model_scores_as_the_trained_one(tmp_path):
    trained = train(tiny_config(toy_file(tmp_path)), tmp_path / "model")
    loaded = TextClassifier.load(tmp_path / "model")
    assert np.array_equal(loaded.scores(TEXTS), trained.scores(TEXTS))
    assert loaded.labels == trained.labels
    assert loaded.config == trained.config
    assert loaded.record == trained.record


def test_repr_tells_what_the_model_is_for():
    classifier = TextClassifier.load(trained_model())
    names = ("a", "b", "c", "d", "e", "f")
    classifier.labels = Labels(names, (0.5,) * 6, "multi-label")
    architecture = classifier.config.model.architecture
    assert repr(classifier) == (
        f"TextClassifier({architecture}, multi-label, 6 labels: a, b, c, d, e, ...; "
        "threshold 0.50)"
    )
    classifier.labels = Labels(("a", "b"), (0.25, 0.5), "single-label")
    assert repr(classifier).endswith("2 labels: a, b; threshold 0.25 to 0.50)")


def test_predictions_count_the_known_words_of_what_is_read():
    predictions = TextClassifier.load(trained_model()).predict(TEXTS)
    # Of the last, 200 words are read; "and", in no training text, is 29 of them.
    counts = [(3, 3), (0, 0), (0, 2), (171, 200)]
    assert [(one.known, one.words) for one in predictions] == counts
    plain = Prediction(
        ("cats",), predictions[0].scores
    )  # as written before there were any
    assert (plain.known, plain.words) == (0, 0)


def test_one_text_gets_one_prediction_and_one_explanation():
    classifier, text = TextClassifier.load(trained_model()), TEXTS[0]
    one, [same] = classifier.predict(text), classifier.predict([text])
    assert isinstance(one, Prediction)
    assert one.labels == same.labels == ("cats",)
    assert one.names == classifier.labels.names
    assert np.array_equal(one.scores, same.scores)
    assert classifier.predict("", threshold=0.0).labels == ()
    assert classifier.explain(text, top=1) == explain(classifier, text, top=1)
    assert classifier.explain(TEXTS[:2])[0].predicted == ("cats",)


def test_a_notebook_shows_labels_and_scores_and_nothing_is_taken_for_markup():
    scores = np.array([0.25, 0.75], dtype=np.float32)
    odd = Prediction(("<b>", "a & b"), scores, names=("a & b", "<b>"))
    page = Page(odd._repr_html_())
    assert page.inside("th") == ["0"]
    assert page.inside("bdi") == ["<b>", "a & b"]
    assert page.inside("span", "score") == ["0.75", "0.25"]
    none = Prediction((), scores)  # as written before predictions had names
    shown = Predictions([odd] * 20 + [none] * 3)._repr_html_()
    assert shown.count("<tr>") == 20 + 1 and "and 3 more" in shown
    assert "<td><i>none</i></td>" in none._repr_html_()


@pytest.mark.parametrize("architecture", ["tfidf-lr", "cl-cnn"])
def test_other_systems_count_words_and_characters_too(tmp_path, architecture):
    model, run = {"architecture": architecture}, {"epochs": 1}
    baseline = {"characters": 123}
    config = tiny_config(toy_file(tmp_path), model=model, baseline=baseline, train=run)
    classifier = train(config, tmp_path / "model")
    predictions = classifier.predict(["my cat é", "é", " "])
    expected = {
        "tfidf-lr": [(2, 3), (0, 1), (0, 0)],
        "cl-cnn": [(5, 6), (0, 1), (0, 0)],
    }
    assert [(one.known, one.words) for one in predictions] == expected[architecture]


@pytest.mark.slow
def test_moved_folder_without_its_data_serves_another_process(tmp_path):
    train(tiny_config(toy_file(tmp_path), train={"epochs": 1}), tmp_path / "model")
    here = TextClassifier.load(tmp_path / "model").scores(TEXTS)
    shutil.move(tmp_path / "model", tmp_path / "elsewhere")
    (tmp_path / "toy.csv").unlink()
    process = spawn("predict", "elsewhere", *TEXTS, "--scores", "--json", cwd=tmp_path)
    out, err = process.communicate()
    assert process.returncode == 0, err
    rows = json.loads(out.splitlines()[-1])["predictions"]
    there = [[row[f"score_{name}"] for name in TOPICS] for row in rows]
    assert np.array_equal(np.array(there, np.float32), here)


def test_saved_again_is_the_same_folder(tmp_path):
    TextClassifier.load(trained_model()).save(tmp_path / "again")
    for name in MODEL_FILES:
        before = (trained_model() / name).read_bytes()
        assert (tmp_path / "again" / name).read_bytes() == before


def test_folder_holds_json_and_plain_tensors_only():
    for name in MODEL_FILES:
        content = (trained_model() / name).read_bytes()
        if name.endswith(".json"):
            json.loads(content)
            continue
        # safetensors: a length, a JSON header of that length, then bare numbers
        (size,) = struct.unpack("<Q", content[:8])
        header = json.loads(content[8 : 8 + size])
        header.pop("__metadata__", None)
        ends = [tensor["data_offsets"][1] for tensor in header.values()]
        assert {tensor["dtype"] for tensor in header.values()} == {"F32"}
        assert 8 + size + max(ends) == len(content)


def test_only_weights_ever_come_from_tensors(monkeypatch, tmp_path):
    def refuse(*args, **options):
        raise AssertionError("a pickle was read")

    monkeypatch.setattr("pickle.load", refuse)
    monkeypatch.setattr("pickle.loads", refuse)
    monkeypatch.setattr("torch.load", refuse)
    assert TextClassifier.load(trained_model()).scores(["cat"]).shape == (1, 3)


# Scores and decisions.


def test_text_without_a_known_word_scores_zero():
    scores = TextClassifier.load(trained_model()).scores(TEXTS)
    assert scores[0].any() and scores[3].any()
    assert not scores[1].any() and not scores[2].any()


def test_text_without_a_known_word_scores_zero_where_padding_votes(tmp_path):
    sections = {
        "data": {"source": str(toy_file(tmp_path))},
        "text": {"max_tokens": 20},
        "model": {"embedding_size": 8, "filters": 4, "capsule_types": 2},
        "train": {"epochs": 1, "device": "cpu"},
    }
    classifier = train(preset("released").replace(**sections), tmp_path / "model")
    scores = classifier.scores(["my cat purr", "", "zzz"])
    assert scores[0].all()
    assert not scores[1:].any()


def test_long_text_is_read_to_its_limit(tmp_path):
    config = tiny_config(
        toy_file(tmp_path), text={"max_tokens": 6}, train={"epochs": 1}
    )
    classifier = train(config, tmp_path / "model")
    head = "cat purr dog bark bird wing"
    scores = classifier.scores([head, f"{head} nest sing claw", "cat purr dog bark"])
    assert np.array_equal(scores[0], scores[1])
    assert not np.array_equal(scores[0], scores[2])


def test_scores_do_not_depend_on_company():
    classifier = TextClassifier.load(trained_model())
    together = classifier.scores(TEXTS)
    alone = np.concatenate([classifier.scores([text]) for text in TEXTS])
    # single precision, summed in another order where a batch is padded
    assert together == pytest.approx(alone, abs=1e-5)


def toy_classifier(task: str, thresholds=(0.5, 0.2, 0.9)) -> TextClassifier:
    loaded = TextClassifier.load(trained_model())
    labels = Labels(tuple(TOPICS), thresholds, task)
    return TextClassifier(loaded.config, loaded.tokenizer, labels, loaded.network)


SCORES = np.array([[0.5, 0.1, 0.6], [0.0, 0.0, 0.0], [0.1, 0.3, 0.95]], np.float32)


def test_single_label_takes_the_highest_and_nothing_of_zeros():
    decided = toy_classifier("single-label").decide(SCORES)
    assert decided.tolist() == [
        [False, False, True],
        [False, False, False],
        [False, False, True],
    ]


def test_multi_label_takes_all_past_their_own_threshold():
    decided = toy_classifier("multi-label").decide(SCORES)
    assert decided.tolist() == [
        [True, False, False],
        [False, False, False],
        [False, True, True],
    ]


def test_threshold_is_for_all_and_asks_for_several():
    decided = toy_classifier("single-label").decide(SCORES, threshold=0.3)
    assert decided.tolist() == [
        [True, False, True],
        [False, False, False],
        [False, True, True],
    ]


def test_threshold_of_zero_gives_a_text_without_words_no_label():
    decided = toy_classifier("multi-label").decide(SCORES, threshold=0.0)
    assert decided.all(1).tolist() == [True, False, True]
    assert not decided[1].any()


def test_asked_for_kind_wins_over_the_models():
    assert toy_classifier("multi-label").decide(SCORES, multi_label=False).sum() == 2
    assert toy_classifier("single-label").decide(SCORES, multi_label=True).sum() == 3


def test_names_come_strongest_first():
    classifier = toy_classifier("multi-label")
    assert classifier.names(SCORES[2], np.array([True] * 3)) == (
        "dogs",
        "cats",
        "birds",
    )


def test_names_of_many_texts_are_those_of_each():
    classifier = toy_classifier("multi-label")
    draw = np.random.default_rng(0)
    scores = draw.integers(0, 4, (50, 3)).astype(np.float32)  # with ties
    chosen = draw.random((50, 3)) < 0.5
    names = classifier.labels.names
    for row, given in enumerate(classifier.names_of_each(scores, chosen)):
        order = sorted(range(3), key=lambda j: -scores[row, j])
        assert given == tuple(names[j] for j in order if chosen[row, j])
    assert classifier.names_of_each(scores[:0], chosen[:0]) == []


# Folders that are no model.


def broken(folder: Path, match: str) -> None:
    with pytest.raises(ModelFolderError, match=match) as caught:
        TextClassifier.load(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", MODEL_FILES)
def test_each_missing_file_is_named(tmp_path, name):
    folder = model_copy(tmp_path)
    (folder / name).unlink()
    broken(folder, name.replace(".", r"\."))


@pytest.mark.parametrize("name", MODEL_FILES)
@pytest.mark.parametrize("damage", ["empty", "half", "noise", "a list"])
def test_each_damaged_file_is_named(tmp_path, name, damage):
    folder = model_copy(tmp_path)
    content = (folder / name).read_bytes()
    damaged = {
        "empty": b"",
        "half": content[: len(content) // 2],
        "noise": bytes(range(256)) * 4,
        "a list": b"[1, 2]",
    }[damage]
    (folder / name).write_bytes(damaged)
    broken(folder, name.replace(".", r"\."))


def test_missing_folder_is_told(tmp_path):
    broken(tmp_path / "gone", "gone must be a model folder; got no such folder")


def test_newer_format_asks_for_an_update(tmp_path):
    folder = model_copy(tmp_path)
    values = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**values, "format": 2}))
    broken(folder, r"config\.json must be of format 1; got 2\. Update textcapsules")


def test_config_of_another_program_is_told(tmp_path):
    folder = model_copy(tmp_path)
    (folder / "config.json").write_text('{"model_type": "bert"}')
    broken(folder, r"must be of format 1; got None\. Another program wrote it")


def test_an_option_younger_than_the_model_is_at_its_default(tmp_path):
    """A preset may have changed since: the model is still what it was."""
    folder = without_sums(model_copy(tmp_path))
    values = json.loads((folder / "config.json").read_text())
    values["preset"] = "best"
    del values["model"]["edges"]
    (folder / "config.json").write_text(json.dumps(values))
    assert preset("best").model.edges
    assert not TextClassifier.load(folder).config.model.edges


CONFIGS = [
    {"model": {"filters": 0}},
    {"model": {"no_such_option": 1}},
    {"model": [1]},
    {"model": "filters"},
    {"weights": {}},
    {"preset": "no such"},
    {"preset": []},
    {"train": None},
]


@pytest.mark.parametrize("change", CONFIGS, ids=json.dumps)
def test_config_with_wrong_options_is_named(tmp_path, change):
    folder = model_copy(tmp_path)
    values = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**values, **change}))
    broken(folder, r"config\.json must hold a run's options")


LABELS = [
    {"labels": []},
    {"labels": [{"name": "only", "threshold": 0.5}]},
    {"labels": [{"name": "a"}, {"name": "b"}]},
    {"labels": [{"name": "a", "threshold": "high"}] * 2},
    {"labels": [{"name": "a", "threshold": 0.5}] * 3},
    {"labels": [{"name": n, "threshold": 0.5} for n in (1, 2, 3)]},
    {"labels": [{"name": n, "threshold": float("nan")} for n in "abc"]},
    {"labels": "abc"},
    {"task": "both"},
]


@pytest.mark.parametrize("change", LABELS, ids=json.dumps)
def test_broken_labels_are_named(tmp_path, change):
    folder = without_sums(model_copy(tmp_path))
    values = json.loads((folder / "labels.json").read_text())
    (folder / "labels.json").write_text(json.dumps({**values, **change}))
    broken(folder, r"labels\.json must list labels with thresholds")


def test_label_too_many_does_not_fit_the_weights(tmp_path):
    folder = without_sums(model_copy(tmp_path))
    values = json.loads((folder / "labels.json").read_text())
    values["labels"].append({"name": "cows", "threshold": 0.5})
    (folder / "labels.json").write_text(json.dumps(values))
    broken(folder, r"model\.safetensors must hold the weights.*size mismatch")


@pytest.mark.parametrize("kind", ["other shape", "one missing", "one too many"])
def test_weights_that_do_not_fit_are_named(tmp_path, kind):
    folder = model_copy(tmp_path)
    weights = load_file(folder / "model.safetensors")
    name = "embedding.weight"
    if kind == "other shape":
        weights[name] = weights[name][:-1].clone()
    elif kind == "one missing":
        del weights[name]
    else:
        weights["extra"] = torch.zeros(2)
    save_file(weights, folder / "model.safetensors")
    broken(folder, r"model\.safetensors must hold the weights")


def test_failed_write_of_weights_keeps_the_old_ones(tmp_path, monkeypatch):
    folder = model_copy(tmp_path)
    before = (folder / "model.safetensors").read_bytes()
    write = Path.write_bytes

    def full(path, content):
        if "model.safetensors" not in path.name:
            return write(path, content)
        write(path, content[: len(content) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(WriteError, match=r"model\.safetensors must be writable.*space"):
        TextClassifier.load(folder).save(folder)
    assert (folder / "model.safetensors").read_bytes() == before
    assert sorted(path.name for path in folder.iterdir()) == sorted(MODEL_FILES)


def test_a_loaded_network_has_the_weights_of_the_file():
    network: Any = TextClassifier.load(trained_model()).network
    saved = load_file(trained_model() / "model.safetensors")
    assert network.state_dict().keys() == saved.keys()
    assert torch.equal(network.embedding.weight.detach(), saved["embedding.weight"])


# Devices.


def test_auto_takes_a_gpu_only_where_there_is_one():
    expected = "cuda" if torch.cuda.is_available() else "cpu"
    assert pick_device("auto").type == expected
    assert pick_device("cpu").type == "cpu"


@pytest.mark.parametrize("name", ["tpu", "meta", "cuda:x", "", "cpu:cpu"])
def test_unknown_device_is_refused(name):
    with pytest.raises(ConfigError, match="device must be auto, cpu, cuda or cuda:N"):
        pick_device(name)


def test_gpu_that_is_not_there_is_refused():
    with pytest.raises(ConfigError, match=r"one this machine has; got 'cuda:99'"):
        pick_device("cuda:99")


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("my cat", r"texts must be a list .*; got a single string\. Put it in a list"),
        (b"my cat", "texts must be a list .*; got bytes"),
        (None, "texts must be a list .*; got NoneType"),
        (7, "texts must be a list .*; got int"),
        (["my cat", None], "texts must be strings; got None at place 1"),
        (["my cat", b"dog"], "texts must be strings; got b'dog' at place 1"),
        ([3, "my cat"], "texts must be strings; got 3 at place 0"),
        ([math.nan], "texts must be strings; got nan at place 0"),
        ([["my cat"], ["a dog"]], r"texts must be strings; got \['my cat'\] at"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("verb", ["predict", "scores", "encode", "explain"])
def test_what_is_no_list_of_texts_is_refused(texts, message, verb):
    classifier = TextClassifier.load(trained_model())
    if verb in ("predict", "explain") and isinstance(texts, str):
        return  # one text, one answer
    with pytest.raises(InputError, match=message) as caught:
        getattr(classifier, verb)(texts)
    assert isinstance(caught.value, ValueError)  # as scikit-learn has it


def test_columns_of_texts_are_read_as_lists_are():
    classifier: Any = TextClassifier.load(trained_model())
    texts = ["my cat", "a dog bark"]
    expected = classifier.scores(texts)
    for column in (tuple(texts), np.array(texts), pd.Series(texts), pa.array(texts)):
        assert np.array_equal(classifier.scores(column), expected)
    assert classifier.predict([]) == []


@pytest.mark.parametrize("threshold", [math.nan, -1, 1.5, math.inf, True, "0.5"])
def test_threshold_that_is_none_is_refused_everywhere(threshold):
    classifier = TextClassifier.load(trained_model())
    message = "threshold must be from 0 to 1; got"
    scores = classifier.scores(["my cat"])
    examples = [Example("my cat", ("cats",))]
    for call in (
        partial(classifier.predict, ["my cat"]),
        partial(classifier.decide, scores),
        partial(evaluate, classifier, examples),
        partial(CapsuleClassifier.of(classifier).predict, ["my cat"]),
    ):
        with pytest.raises(ConfigError, match=message):
            call(threshold=threshold)


def test_threshold_for_the_highest_label_alone_is_refused():
    classifier = TextClassifier.load(trained_model())
    with pytest.raises(ConfigError, match="threshold must go with all labels past it"):
        classifier.predict(["my cat"], multi_label=False, threshold=0.5)


@pytest.mark.parametrize("scores", [[0.1, 0.2, 0.3], [[0.1, 0.2]], np.zeros((2, 4))])
def test_scores_of_another_shape_are_refused(scores):
    classifier: Any = TextClassifier.load(trained_model())
    with pytest.raises(InputError, match=r"scores must be of shape \(N, 3\)"):
        classifier.decide(scores)
    assert classifier.decide([[0.1, 0.2, 0.9]]).tolist() == [[False, False, True]]


@pytest.mark.parametrize(
    ("examples", "message"),
    [
        ("my cat", "got a single string"),
        (["my cat"], "must be of Example"),
        ([Example("my cat", "cats")], "labels a tuple of names"),  # type: ignore[arg-type]
        ([Example(None, ("cats",))], "texts must be strings; got None"),  # type: ignore[arg-type]
    ],
    ids=repr,
)
def test_evaluate_refuses_what_is_no_example(examples, message):
    with pytest.raises(InputError, match=message):
        evaluate(TextClassifier.load(trained_model()), examples)
