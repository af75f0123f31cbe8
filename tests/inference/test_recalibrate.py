"""New thresholds for a model and its folder, and the estimate of their worth."""

from pathlib import Path

import numpy as np
import pytest

from textcapsules.base.errors import DataError, InputError, ModelFolderError
from textcapsules.data.example import Example
from textcapsules.inference import recalibrate as module
from textcapsules.inference.evaluate import evaluate
from textcapsules.inference.recalibrate import (
    decide_left_out,
    estimate,
    fit_reviews,
    model_identity,
    recalibrate,
    save_copy,
    save_in_place,
    undo_thresholds,
    wilson,
)
from textcapsules.model.classifier import FORMER, TextClassifier
from textcapsules.text.outside import OutsideRule
from textcapsules.training.calibrate import logit, reviewed_thresholds
from textcapsules.training.run import train
from tiny_encoder import write_encoder
from toy import (
    OFF_TOPIC,
    TOPICAL,
    model_copy,
    refusing_model,
    tiny_config,
    toy_file,
    toy_rows,
)


def reviewed(n: int = 12) -> tuple[list[str], list[list[str]]]:
    rows = toy_rows(n, seed=9)
    return [text for text, _ in rows], [[topic] for _, topic in rows]


def test_each_text_is_judged_by_thresholds_of_the_others() -> None:
    random = np.random.default_rng(0)
    scores = random.random((9, 3)).astype(np.float32)
    targets = random.random((9, 3)) < scores
    present = np.full(3, 0.5)
    decided, one_each = decide_left_out(scores, targets, present)
    for row in range(9):
        others = np.arange(9) != row
        fitted = reviewed_thresholds(scores[others], targets[others], present)
        assert decided[row].tolist() == (scores[row] >= fitted).tolist()
        if decided[row].any():
            assert one_each[row].tolist() == decided[row].tolist()
        else:
            nearest = np.argmax(logit(scores[row]) - logit(fitted))
            assert np.flatnonzero(one_each[row]).tolist() == [nearest]


def test_intervals() -> None:
    assert wilson(0.5, 100) == pytest.approx((0.4038, 0.5962), abs=1e-4)  # Newcombe
    assert wilson(1.0, 3)[1] == 1
    assert wilson(0.0, 3)[0] == 0
    targets = np.random.default_rng(0).random((40, 3)) < 0.5
    figures = estimate(targets ^ (np.arange(40) % 4 == 0)[:, None], targets)
    assert figures.exact_match == 0.75
    low, high = figures.micro_f1_interval
    assert low < figures.micro_f1 < high


def test_the_estimate_is_for_texts_drawn_at_random() -> None:
    scores = np.array([[0.9, 0.1]] * 8 + [[0.6, 0.4]] * 8, dtype=np.float32)
    targets = np.array([[1, 0]] * 8 + [[0, 0]] * 8, dtype=bool)
    labels = ("a", "b"), (0.5, 0.5)
    everything = fit_reviews(scores, targets, *labels)
    assert everything.value_before.exact_match == 0.5
    assert everything.on == "all"
    drawn = fit_reviews(scores, targets, *labels, np.arange(16) < 8)
    assert drawn.value_before.exact_match == 1
    assert drawn.value_after.texts == 8
    assert drawn.after == everything.after  # all texts help to find them
    assert not drawn.is_worse
    none_drawn = fit_reviews(scores, targets, *labels, np.zeros(16, bool))
    assert none_drawn.value_before.texts == 16


def test_the_estimate_names_a_drawing_only_where_there_was_one() -> None:
    scores = np.array([[0.9, 0.1]] * 8, dtype=np.float32)
    given = scores, scores > 0.5, ("a", "b"), (0.5, 0.5)
    assert fit_reviews(*given, np.ones(8, bool)).on == "all"
    assert fit_reviews(*given, np.arange(8) > 3).on == "those drawn at random"


def test_refused_texts_count_as_evaluate_counts_them() -> None:
    model = TextClassifier.load(refusing_model(), "cpu")
    model.labels = model.labels._replace(thresholds=(0.4,) * 3)
    texts = [TOPICAL, OFF_TOPIC, "bird wing feather nest", "zzz bird qqq vvv www xxx"]
    labels = [["cats"], ["cats"], ["birds"], []]
    fitted = recalibrate(model, texts, labels)
    examples = [Example(*pair) for pair in zip(texts, map(tuple, labels), strict=True)]
    judged, unrefused = (
        evaluate(model, examples, refuse=refuse) for refuse in (True, False)
    )
    assert judged.refused == 2
    assert fitted.value_before.exact_match == judged.multi_label["exact_match"]
    assert fitted.value_before.exact_match != unrefused.multi_label["exact_match"]
    assert fitted.value_before.micro_f1 == pytest.approx(judged.multi_label["micro_f1"])
    # No thresholds can give a refused text its label.
    assert fitted.value_after.exact_match <= 0.75


def test_classifier_takes_thresholds_unless_they_are_worse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = TextClassifier.load(model_copy(tmp_path), "cpu")
    before = model.labels
    fitted = model.recalibrate(*reviewed())
    assert not fitted.is_worse
    assert model.labels.thresholds == fitted.after != before.thresholds
    assert model.record["calibration"]["on"] == "12 reviewed texts"
    model.labels = before
    bad = lambda scores, targets, present: np.full(len(present), 0.001)  # noqa: E731
    monkeypatch.setattr(module, "reviewed_thresholds", bad)
    assert model.recalibrate(*reviewed()).is_worse
    assert model.labels == before
    model.recalibrate(*reviewed(), force=True)
    assert set(model.labels.thresholds) == {0.001}


def test_reviews_tell_whether_every_text_has_a_label() -> None:
    # The last six are below any threshold that keeps the others' second label out.
    scores = np.array([[0.9, 0.6]] * 10 + [[0.55, 0.3]] * 6, dtype=np.float32)
    targets = np.array([[1, 0]] * 16, dtype=bool)
    names, thresholds = ("a", "b"), (0.7, 0.7)
    labelled = fit_reviews(scores, targets, names, thresholds)
    bare = targets.copy()
    bare[10:] = False
    assert not fit_reviews(scores, bare, names, thresholds).at_least_one
    assert labelled.value_after.exact_match == 1


def test_at_least_one_label_is_kept_in_the_folder(tmp_path: Path) -> None:
    folder = model_copy(tmp_path)
    model = TextClassifier.load(folder, "cpu")
    before = (folder / "labels.json").read_bytes()
    assert b"at_least_one" not in before
    fitted = recalibrate(model, *reviewed())._replace(
        after=(0.999,) * 3, at_least_one=True
    )
    save_in_place(model, fitted, folder)
    loaded = TextClassifier.load(folder, "cpu")
    assert loaded.labels.at_least_one
    texts, labels = reviewed()
    assert all(each.labels for each in loaded.predict(texts, multi_label=True))
    assert not any(
        each.labels for each in loaded.predict(texts, multi_label=True, threshold=0.999)
    )
    examples = [Example(*each) for each in zip(texts, map(tuple, labels), strict=True)]
    figures = evaluate(loaded, examples)
    assert figures.multi_label["exact_match"] == 1
    assert not undo_thresholds(folder).at_least_one
    assert (folder / "labels.json").read_bytes() == before


def test_in_place_and_back(tmp_path: Path) -> None:
    folder = model_copy(tmp_path)
    identity = model_identity(folder)
    original = (folder / "labels.json").read_bytes(), TextClassifier.load(folder).record
    model = TextClassifier.load(folder, "cpu")
    fitted = recalibrate(model, *reviewed())
    save_in_place(model, fitted, folder)
    assert model.labels.thresholds == fitted.after
    loaded = TextClassifier.load(folder, "cpu")  # its sums are right
    assert loaded.labels == model.labels
    again = recalibrate(loaded, *reviewed(30))
    assert again.before == fitted.before  # no text counts twice
    save_in_place(loaded, again, folder)
    assert model_identity(folder) == identity
    assert undo_thresholds(folder).thresholds == fitted.after
    undo_thresholds(folder)
    restored = (folder / "labels.json").read_bytes(), TextClassifier.load(folder).record
    assert restored == original
    assert not (folder / FORMER).exists()
    with pytest.raises(ModelFolderError, match="former thresholds"):
        undo_thresholds(folder)


def test_killed_at_any_write_the_folder_has_old_or_new_thresholds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from textcapsules.base import files

    write, ends = files.Path.replace, set()
    for allowed in range(8):
        folder = model_copy(tmp_path / str(allowed))
        model = TextClassifier.load(folder, "cpu")
        before = model.labels.thresholds
        fitted = recalibrate(model, *reviewed())
        left = allowed

        def die(self: Path, target: Path) -> Path:
            nonlocal left
            if not left:
                raise KeyboardInterrupt
            left -= 1
            return write(self, target)

        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", die)
            try:
                save_in_place(model, fitted, folder)
                is_done = True
            except KeyboardInterrupt:
                is_done = False
        found = TextClassifier.load(folder, "cpu").labels.thresholds
        assert found in (before, fitted.after)
        ends.add((is_done, found == before))
        if found != before:
            assert undo_thresholds(folder).thresholds == before
        if is_done:
            break
    assert ends == {(False, True), (False, False), (True, False)}


def test_a_copy_is_another_folder_of_the_same_model(tmp_path: Path) -> None:
    folder = model_copy(tmp_path)
    model = TextClassifier.load(folder, "cpu")
    n_words = model.tokenizer.n_words
    model.rule = OutsideRule(np.zeros(n_words, np.uint8), 1.0, 2.0)
    fitted = recalibrate(model, *reviewed())
    save_copy(model, fitted, tmp_path / "copy")
    copy = TextClassifier.load(tmp_path / "copy", "cpu")
    assert copy.labels.thresholds == fitted.after
    assert copy.rule is not None  # it refuses texts as before
    assert model.labels.thresholds == fitted.before
    assert model_identity(tmp_path / "copy") == model_identity(folder)
    with pytest.raises(ModelFolderError, match="must be empty"):
        save_copy(model, fitted, folder)


@pytest.mark.parametrize("architecture", ["tfidf-svm", "tfidf-lr", "cnn", "encoder"])
def test_other_architectures(tmp_path: Path, architecture: str) -> None:
    config = tiny_config(toy_file(tmp_path))
    if architecture == "encoder":
        encoder = write_encoder(tmp_path / "encoder")
        config = config.replace(text={"encoder": str(encoder)})
    else:
        config = config.replace(model={"architecture": architecture})
    model = train(config.replace(train={"epochs": 1}), tmp_path / "model")
    fitted = model.recalibrate(*reviewed(20), force=True)
    assert all(0 < each < 1 for each in fitted.after)
    save_in_place(model, fitted, tmp_path / "model")
    assert TextClassifier.load(tmp_path / "model").labels.thresholds == fitted.after


def test_bad_reviews_are_refused(tmp_path: Path) -> None:
    model = TextClassifier.load(model_copy(tmp_path), "cpu")
    with pytest.raises(DataError, match="label must be one of birds, cats, dogs"):
        recalibrate(model, ["a bird"], [["fish"]])
    for labels in (["birds"], [["birds"], []], [[1]], []):
        with pytest.raises(InputError, match="one list of names per text"):
            recalibrate(model, ["a bird"], labels)  # type: ignore[arg-type]
