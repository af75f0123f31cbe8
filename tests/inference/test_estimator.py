"""`CapsuleClassifier` in the hands of scikit-learn's users."""

import copy
import functools
import pickle
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.metrics import accuracy_score
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    cross_val_predict,
    cross_val_score,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MultiLabelBinarizer

import textcapsules
from textcapsules import CapsuleClassifier, TextClassifier
from textcapsules.base.errors import ConfigError, ModelFolderError
from tiny_encoder import write_encoder
from toy import (
    OFF_TOPIC,
    TINY_MODEL,
    TOPICAL,
    TOPICS,
    refusing_model,
    run_cli,
    toy_rows,
    trained_model,
)

TEXTS, TOPIC = map(list, zip(*toy_rows(60), strict=True))
NEW, NEW_TOPIC = map(list, zip(*toy_rows(30, seed=5), strict=True))
# Two texts in one, with both labels.
PAIRS = [f"{NEW[row]} {NEW[row + 1]}" for row in range(12)]
PAIR_TOPICS = [tuple(sorted(NEW_TOPIC[row : row + 2])) for row in range(12)]


def tiny(**changes: Any) -> CapsuleClassifier:
    settings: dict[str, Any] = {
        "preset": "paper",
        "epochs": 5,
        "batch_size": 6,
        "learning_rate": 0.05,
        "options": TINY_MODEL,
        "random_state": 0,
        "device": "cpu",
    }
    return CapsuleClassifier(**{**settings, **changes})


@functools.cache
def fitted() -> CapsuleClassifier:
    """Return an estimator trained once for all tests, not to be changed."""
    return tiny(joined=1.0).fit(TEXTS, TOPIC)


def own_copy() -> Any:
    return copy.deepcopy(fitted())


@functools.cache
def fitted_on_sets() -> CapsuleClassifier:
    return tiny().fit(TEXTS + PAIRS, [{topic} for topic in TOPIC] + PAIR_TOPICS)


def test_raw_strings_in_label_names_out() -> None:
    found = fitted().predict(NEW)
    assert fitted().classes_.tolist() == sorted(TOPICS)
    assert isinstance(found, np.ndarray) and found.dtype.kind == "U"
    assert accuracy_score(NEW_TOPIC, found) >= 0.9  # three topics: chance is a third
    assert fitted().score(NEW, NEW_TOPIC) == accuracy_score(NEW_TOPIC, found)
    assert is_classifier(fitted())


def test_scores_are_those_of_the_model() -> None:
    lengths = fitted().model_.scores(NEW)
    np.testing.assert_allclose(fitted().decision_function(NEW), lengths, rtol=1e-6)
    shares = fitted().predict_proba(NEW)
    np.testing.assert_allclose(shares.sum(1), 1)
    np.testing.assert_allclose(shares, lengths / lengths.sum(1)[:, None], rtol=1e-5)
    each = fitted().predict_proba(NEW, multi_label=True)
    np.testing.assert_allclose(each, lengths, rtol=1e-6)


def test_two_classes_have_one_decision() -> None:
    two = tiny(epochs=2).fit(TEXTS[:40], [topic == "cats" for topic in TOPIC[:40]])
    decision = two.decision_function(NEW)
    assert decision.shape == (len(NEW),)
    assert (two.predict(NEW) == (decision > 0)).all()
    assert two.classes_.tolist() == [False, True]


def test_text_without_a_known_word_gets_the_prior() -> None:
    texts, topics = [*TEXTS, "purr meow claw"], [*TOPIC, "cats"]
    one = tiny(epochs=1).fit(texts, topics)
    assert one.predict(["", "qwertz"]).tolist() == ["cats", "cats"]
    expected = [topics.count(topic) / len(topics) for topic in sorted(TOPICS)]
    np.testing.assert_allclose(one.predict_proba([""])[0], expected)
    assert one.predict([""], multi_label=True)[0] == ()
    assert one.decision_function([""]).tolist() == [[0.0] * 3]


def test_several_labels_from_single_ones() -> None:
    found = fitted().predict(PAIRS, multi_label=True)
    assert found.shape == (len(PAIRS),) and isinstance(found[0], tuple)
    expected = fitted().model_.predict(PAIRS, multi_label=True)
    assert found.tolist() == [each.labels for each in expected]
    by_constructor = own_copy().set_params(multi_label=True)
    assert by_constructor.predict(PAIRS).tolist() == found.tolist()
    assert by_constructor.predict(PAIRS, multi_label=False).dtype.kind == "U"
    sets = [set(row) for row in found]
    right = np.mean([a == set(b) for a, b in zip(sets, PAIR_TOPICS, strict=True)])
    assert by_constructor.score(PAIRS, PAIR_TOPICS) == right > 0.3


def test_constructor_asks_for_joined_selection() -> None:
    asked = tiny(multi_label=True, epochs=1).fit(TEXTS, TOPIC)
    assert asked.model_.labels.task == "multi-label"
    assert asked.model_.config.train.select == "joined"
    assert asked.predict(NEW).dtype == object


def test_calibration_follows_the_options() -> None:
    plain = tiny(epochs=1).fit(TEXTS, TOPIC).model_.record["calibration"]
    assert plain["on"] == "single and joined dev documents"
    options = {**TINY_MODEL, "calibrate_on": "joined", "thresholds": "per-label"}
    asked = tiny(epochs=1, options=options).fit(TEXTS, TOPIC)
    found = asked.model_.record["calibration"]
    assert found["on"] == "joined dev documents"
    assert found["thresholds"] == asked.thresholds_.tolist()


def test_thresholds_may_be_changed() -> None:
    own = own_copy()
    calibrated = own.thresholds_.copy()
    assert calibrated.tolist() == list(own.model_.labels.thresholds)
    own.thresholds_ = 0.0
    assert all(len(row) == 3 for row in own.predict(NEW, multi_label=True))
    own.thresholds_ = [1.0, 1.0, 0.0]
    assert set(own.predict(NEW, multi_label=True)) == {("dogs",)}
    own.thresholds_ = {"dogs": 1.0, "birds": 0.0}
    np.testing.assert_array_equal(own.thresholds_, [0.0, 1.0, 1.0])
    assert set(own.predict(NEW, multi_label=True, threshold=1.0)) == {()}
    assert fitted().thresholds_.tolist() == calibrated.tolist()
    with pytest.raises(ValueError, match="read-only"):
        fitted().thresholds_[0] = 0.5
    with pytest.raises(ValueError, match=r"must be of the labels .*; got 'fish'"):
        own.thresholds_ = {"fish": 0.5}
    for wrong in ([0.5, 0.5], np.nan, np.inf, 3, [0.5, 0.5, -0.1], {"dogs": 1.5}):
        with pytest.raises(ValueError, match="from 0 to 1 or 3 of them; got"):
            own.thresholds_ = wrong
    np.testing.assert_array_equal(own.thresholds_, [0.0, 1.0, 1.0])


def test_label_sets_are_learnt_and_given_back() -> None:
    several = fitted_on_sets()
    assert several.target_form_ == "sets"
    found = several.predict(PAIRS)
    assert all(isinstance(row, tuple) for row in found)
    assert {label for row in found for label in row} <= set(TOPICS)
    assert several.predict_proba(PAIRS).max() <= 1
    assert several.score(TEXTS, [[topic] for topic in TOPIC]) > 0.5


@pytest.mark.parametrize("kind", ["array", "sparse", "frame", "lists"])
def test_matrix_in_matrix_out(kind: str) -> None:
    binarizer = MultiLabelBinarizer()
    rows = [(topic,) for topic in TOPIC] + PAIR_TOPICS
    matrix = np.asarray(binarizer.fit_transform(rows))
    y: Any = {
        "array": matrix,
        "sparse": scipy.sparse.csr_matrix(matrix),
        "frame": pd.DataFrame(matrix, columns=list(binarizer.classes_)),
        "lists": matrix.tolist(),
    }[kind]
    several = tiny(epochs=3).fit(TEXTS + PAIRS, y)
    found = several.predict(NEW)
    assert found.shape == (len(NEW), 3) and set(found.ravel().tolist()) <= {0, 1}
    names = list(binarizer.classes_) if kind == "frame" else [0, 1, 2]
    assert several.classes_.tolist() == names
    same = (several.predict(TEXTS + PAIRS) == matrix).all(1).mean()
    assert several.score(TEXTS + PAIRS, y) == pytest.approx(same)


@pytest.mark.parametrize(
    "values",
    [(3, 1, 2), (2.0, 4.0, 8.0), ("b", "a", "ü"), ("x", 1, None.__class__)],
    ids=str,
)
def test_labels_come_back_as_given(values: tuple) -> None:
    of_topic = dict(zip(TOPICS, values, strict=True))
    labels = [of_topic[topic] for topic in TOPIC]
    found = tiny(epochs=1).fit(TEXTS, labels).predict(TEXTS).tolist()
    assert set(found) <= set(values)
    assert {type(label) for label in found} <= {type(value) for value in values}


def columns(values: list) -> dict[str, Any]:
    return {
        "tuple": tuple(values),
        "numpy": np.array(values),
        "objects": np.array(values, dtype=object),
        "one column": np.array(values, dtype=object)[:, None],
        "pandas": pd.Series(values, index=range(7, 7 + len(values))),
        "frame": pd.DataFrame({"text": values}),
        "polars": pl.Series(values),
        "polars frame": pl.DataFrame({"text": values}),
        "arrow": pa.array(values),
        "generator": (value for value in values),
    }


@pytest.mark.parametrize("kind", columns([""]))
def test_texts_may_come_in_any_column(kind: str) -> None:
    expected = fitted().predict_proba(NEW)
    given = columns(NEW)[kind]
    np.testing.assert_array_equal(fitted().predict_proba(given), expected)


@pytest.mark.parametrize("kind", ["tuple", "numpy", "pandas", "polars", "arrow"])
def test_labels_may_come_in_any_column(kind: str) -> None:
    one = tiny(epochs=1).fit(columns(TEXTS)[kind], columns(TOPIC)[kind])
    assert one.classes_.tolist() == sorted(TOPICS)
    same = tiny(epochs=1).fit(TEXTS, TOPIC)
    np.testing.assert_array_equal(one.predict_proba(NEW), same.predict_proba(NEW))


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ("my cat", "got a single string. Put it in a list"),
        (None, "texts must be a list or column, one entry per text; got NoneType"),
        (7, "got int"),
        ({"a": 1}, "got dict"),
        ({"a"}, "got set"),
        ([1, 2], "texts must be strings; got 1 at place 0"),
        (["a", None], "got None at place 1. Fill in"),
        (["a", float("nan")], "got nan at place 1"),
        ([b"bytes"], "got b'bytes' at place 0"),
        (np.ones((2, 2)), r"must be one column of strings; got shape \(2, 2\)"),
        (pd.DataFrame({"a": ["x"], "b": ["y"]}), r"got shape \(1, 2\)"),
        (scipy.sparse.csr_matrix((2, 3)), r"got shape \(2, 3\)"),
        (np.array("x"), r"got shape \(\)"),
    ],
    ids=str,
)
def test_wrong_texts_are_named(texts: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        fitted().predict(texts)
    with pytest.raises(ValueError, match=said):
        tiny().fit(texts, ["a", "b"])


@pytest.mark.parametrize(
    ("y", "said"),
    [
        (None, "the target y is None"),
        ("abc", "y must be a list or column.* got a single string"),
        (["a", "b"], "y must have an entry for each text, 4; got 2"),
        (["a"] * 4, r"more than one class to tell apart; got \['a'\]"),
        (["a", "b", None, "a"], "missing labels; got None at place 2"),
        (["a", "b", float("nan"), "a"], "missing labels; got nan at place 2"),
        (pd.Series(["a", "b", pd.NA, "a"]), "missing labels; got .* at place 2"),
        (np.array([0.1, 0.2, 0.3, 0.4]), "continuous"),
        ([["a"], ["b"], "a", ["b"]], "list of labels for each text.*got 'a' at place"),
        ([["a"], ["b", None], ["a"], []], "got None at place 1"),
        ([{}, {}, {}, {}], "labels that can be told apart; got {} at place 0"),
        (np.full((4, 2), 3), r"shape \(4, 2\) with other values"),
        (np.zeros((4, 2, 2)), r"shape \(4, 2, 2\)"),
    ],
    ids=str,
)
def test_wrong_labels_are_named(y: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        tiny().fit(["a b", "c d", "e f", "g h"], y)


def test_wrong_settings_are_named() -> None:
    for settings, said in [
        ({"preset": "worst"}, "preset must be one of"),
        ({"options": {"filter": 3}}, "options must be among .*; got 'filter'"),
        ({"options": {"seed": 3}}, "options must be among .*; got 'seed'"),
        ({"epochs": 0}, "epochs must be .*; got 0"),
        ({"device": "toaster"}, "device must be"),
        ({"random_state": -1}, "seed must be"),
    ]:
        with pytest.raises(ConfigError, match=said):
            tiny(**settings).fit(TEXTS, TOPIC)
    with pytest.raises(ValueError, match="must have words"):
        tiny().fit(["", " ", "", ""], [1, 2, 1, 2])
    for act in ("predict", "predict_proba", "decision_function", "explain"):
        with pytest.raises(NotFittedError):
            getattr(tiny(), act)(NEW)
    with pytest.raises(NotFittedError):
        tiny().save("nowhere")


def test_named_settings_reach_the_run() -> None:
    one = tiny(preset="sabour", epochs=1, joined=0.5, max_tokens=9, random_state=7).fit(
        TEXTS, TOPIC
    )
    config = one.model_.config
    assert config.preset == "sabour" and config.model.orphan is False
    assert (config.train.epochs, config.train.joined) == (1, 0.5)
    assert (config.text.max_tokens, config.train.seed) == (9, 7)
    assert config.model.filters == TINY_MODEL["filters"]


def test_seed_decides() -> None:
    def scores(random_state: Any) -> np.ndarray:
        one = tiny(epochs=1, random_state=random_state)
        return one.fit(TEXTS, TOPIC).predict_proba(NEW)

    np.testing.assert_array_equal(scores(3), scores(3))
    assert not np.array_equal(scores(3), scores(4))
    drawn = [scores(np.random.RandomState(seed)) for seed in (1, 1, 2)]
    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert not np.array_equal(drawn[0], drawn[2])


def test_works_in_pipeline_and_search() -> None:
    lower = FunctionTransformer(lambda texts: [text.lower() for text in texts])
    pipeline = make_pipeline(lower, tiny(epochs=2))
    grid = {"capsuleclassifier__learning_rate": [1e-6, 0.05]}
    search = GridSearchCV(pipeline, grid, cv=2).fit(TEXTS, TOPIC)
    assert search.best_params_ == {"capsuleclassifier__learning_rate": 0.05}
    assert search.predict(NEW).tolist() == search.best_estimator_.predict(NEW).tolist()


def test_works_in_cross_validation() -> None:
    scores = cross_val_score(tiny(epochs=3), TEXTS, TOPIC, cv=2)
    assert scores.shape == (2,) and (scores > 0.5).all()
    auc = cross_val_score(tiny(epochs=3), TEXTS, TOPIC, cv=2, scoring="roc_auc_ovr")
    assert (auc > 0.7).all()
    matrix: Any = MultiLabelBinarizer().fit_transform([(topic,) for topic in TOPIC])
    found: Any = cross_val_predict(
        tiny(epochs=3), TEXTS, matrix, cv=KFold(2, shuffle=True)
    )
    assert found.shape == matrix.shape


def test_clone_and_pickle(tmp_path: Path) -> None:
    fresh: Any = clone(fitted())
    assert fresh.get_params() == fitted().get_params()
    with pytest.raises(NotFittedError):
        fresh.predict(NEW)
    own = own_copy()
    own.thresholds_ = 0.25
    joblib.dump(own, tmp_path / "own.joblib")
    for back in (joblib.load(tmp_path / "own.joblib"), pickle.loads(pickle.dumps(own))):
        np.testing.assert_array_equal(back.predict_proba(NEW), own.predict_proba(NEW))
        assert back.thresholds_.tolist() == [0.25] * 3
        assert back.get_params() == own.get_params()
    assert pickle.loads(pickle.dumps(tiny())).get_params() == tiny().get_params()


def test_folder_is_one_of_the_command_line(tmp_path: Path) -> None:
    own = tiny(epochs=1).fit(TEXTS, [len(topic) for topic in TOPIC])
    own.thresholds_ = 0.25
    own.save(tmp_path / "model")
    back = CapsuleClassifier.load(tmp_path / "model", "cpu")
    assert back.classes_.tolist() == [4, 5] and back.predict(NEW).dtype.kind == "i"
    np.testing.assert_array_equal(back.predict_proba(NEW), own.predict_proba(NEW))
    np.testing.assert_array_equal(back.predict_proba([""]), own.predict_proba([""]))
    assert back.thresholds_.tolist() == [0.25] * 2
    ran = run_cli("predict", tmp_path / "model", NEW[0])
    assert f'"predicted": ["{own.predict(NEW[:1])[0]}"]' in ran.out
    with pytest.raises(ModelFolderError, match="must be empty; got an earlier run"):
        own.save(tmp_path / "model")
    own.save(tmp_path / "model", overwrite=True)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(ModelFolderError, match=r"got letter\.txt"):
        own.save(tmp_path / "mine", overwrite=True)


def test_model_of_the_command_line_is_loaded() -> None:
    back = CapsuleClassifier.load(trained_model(), "cpu")
    assert back.classes_.tolist() == sorted(TOPICS)
    expected = TextClassifier.load(trained_model(), "cpu").predict(NEW)
    assert back.predict(NEW).tolist() == [each.labels[0] for each in expected]
    np.testing.assert_allclose(back.predict_proba([""]), 1 / 3)


def test_labels_that_json_lacks_are_not_saved(tmp_path: Path) -> None:
    own = own_copy()
    own.classes_ = np.array([frozenset("a"), frozenset("b"), 1], dtype=object)
    with pytest.raises(ValueError, match=r"must be strings or numbers.*joblib\.dump"):
        own.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_explanation_points_into_the_text() -> None:
    text = "the nest was very \U0001f426 my bird sing today"
    (explanation,) = fitted().explain([text], top=3)
    assert explanation.text == text
    for label in explanation.labels:
        assert label.label in TOPICS
        for phrase in label.phrases:
            assert text[phrase.start : phrase.end] == phrase.text


def test_verbose_tells_of_each_epoch(capsys: pytest.CaptureFixture) -> None:
    tiny(epochs=2).fit(TEXTS, TOPIC)
    assert capsys.readouterr() == ("", "")
    tiny(epochs=2, verbose=True).fit(TEXTS, TOPIC)
    out, err = capsys.readouterr()
    assert out == ""
    assert [line.split(":")[0] for line in err.splitlines()] == ["epoch 1", "epoch 2"]


@pytest.mark.filterwarnings("ignore")  # of the library's own making
def test_lime_explains_it() -> None:
    from lime.lime_text import LimeTextExplainer

    explainer = LimeTextExplainer(class_names=list(TOPICS), random_state=0)
    text = "the cat was very some purr today meow it whisker"
    lime = explainer.explain_instance(
        text, fitted().predict_proba, labels=(1,), num_features=3, num_samples=200
    )
    strongest = {word for word, weight in lime.as_list(label=1) if weight > 0}
    assert strongest & set(TOPICS["cats"])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the library's own making
def test_shap_explains_it() -> None:
    from shap import Explainer
    from shap.maskers import Text

    explainer: Any = Explainer(
        fitted().predict_proba, Text(r"\W+"), output_names=list(TOPICS)
    )
    text = "the dog was very some bark today puppy it leash"
    values = explainer([text], max_evals=100, silent=True)
    found = values.values[0]  # (words, classes)
    assert found.shape == (10, 3)
    before = fitted().predict_proba([text])[0] - values.base_values[0]
    np.testing.assert_allclose(found.sum(0), before, atol=1e-4)
    assert values.data[0][found[:, 2].argmax()].strip() in TOPICS["dogs"]


def test_public_names_are_found_late() -> None:
    assert textcapsules.CapsuleClassifier is CapsuleClassifier
    with pytest.raises(AttributeError, match="has no attribute 'Capsule'"):
        _ = textcapsules.Capsule


def test_an_encoder_stands_under_the_capsules(tmp_path: Path) -> None:
    encoder = write_encoder(tmp_path / "encoder")
    options = {"filters": 8, "capsule_types": 2, "capsule_size": 4}
    model = CapsuleClassifier(encoder=str(encoder), epochs=1, options=options)
    model.fit(["my cat purrs", "the dog barks"] * 10, ["cat", "dog"] * 10)
    assert model.model_.config.preset == "encoder-frozen"
    again = pickle.loads(pickle.dumps(model))
    texts = ["my cat purrs. the dog barks."]
    assert again.predict_proba(texts).tolist() == model.predict_proba(texts).tolist()


def test_texts_outside_get_no_label_where_several_are_asked_for() -> None:
    model = CapsuleClassifier.load(refusing_model())
    texts = [TOPICAL, OFF_TOPIC]
    assert model.outside(texts).tolist() == [False, True]
    refusing = model.predict(texts, threshold=0.01)
    assert [bool(labels) for labels in refusing] == [True, False]
    kept = model.predict(texts, threshold=0.01, refuse=False)
    assert [bool(labels) for labels in kept] == [True, True]
    assert len(model.predict(texts)) == 2  # one label each, as scikit-learn demands
