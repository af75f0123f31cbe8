"""Metrics against small cases computed by hand, and scikit-learn."""

from pathlib import Path

import numpy as np
import pytest
from sklearn import metrics as sklearn_metrics

from textcapsules.draw.pictures import plot_confusion
from textcapsules.model.score import highest
from textcapsules.training.metrics import (
    confusion,
    multi_label,
    per_class,
    single_label,
)

PNG = b"\x89PNG\r\n\x1a\n"
TARGETS = np.array([[1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 1]])
PREDICTED = np.array([[1, 0, 0], [1, 1, 0], [1, 0, 0], [0, 0, 0]])


def test_accuracy_counts_the_highest_score() -> None:
    scores = np.array([[0.9, 0.1], [0.6, 0.4], [0.2, 0.3], [0.1, 0.8]])
    targets = np.array([[1, 0], [0, 1], [0, 1], [0, 1]])
    found = single_label(scores, targets)
    assert found["accuracy"] == 0.75
    # Class 0: precision 1/2, recall 1; class 1: precision 1, recall 2/3.
    assert found["macro_f1"] == pytest.approx((2 / 3 + 4 / 5) / 2)


def test_text_whose_scores_are_all_zero_is_never_right() -> None:
    scores = np.array([[0.0, 0.0, 0.0], [0.0, 0.0, 0.1]])
    targets = np.array([[1, 0, 0], [0, 0, 1]])
    assert highest(scores).tolist() == [-1, 2]
    assert single_label(scores, targets)["accuracy"] == 0.5
    assert confusion(scores, targets).tolist() == [[0, 0, 0], [0, 0, 0], [0, 0, 1]]


def test_every_average_is_named_and_equals_the_hand_computed_value() -> None:
    found = multi_label(PREDICTED, TARGETS)
    assert found == pytest.approx(
        {
            "exact_match": 1 / 4,  # the first text alone
            # Three of four decisions are right; five labels were asked for.
            "micro_precision": 3 / 4,
            "micro_recall": 3 / 5,
            "micro_f1": 2 * 3 / (4 + 5),
            # Classes: precision 2/3, 1, 0; recall 1, 1/2, 0; F1 4/5, 2/3, 0.
            "macro_precision": (2 / 3 + 1 + 0) / 3,
            "macro_recall": (1 + 1 / 2 + 0) / 3,
            "macro_f1": (4 / 5 + 2 / 3 + 0) / 3,
            # Texts: precision 1, 1/2, 1, 0; recall 1, 1, 1/2, 0; F1 1, 2/3, 2/3, 0.
            "samples_precision": (1 + 1 / 2 + 1 + 0) / 4,
            "samples_recall": (1 + 1 + 1 / 2 + 0) / 4,
            "samples_f1": (1 + 2 / 3 + 2 / 3 + 0) / 4,
        }
    )


def test_multi_label_agrees_with_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    targets, predicted = rng.random((60, 5)) < 0.4, rng.random((60, 5)) < 0.5
    found = multi_label(predicted.astype(float), targets.astype(np.float32))
    assert found["exact_match"] == sklearn_metrics.accuracy_score(targets, predicted)
    for average in ("micro", "macro", "samples"):
        for name in ("precision", "recall", "f1"):
            score = getattr(sklearn_metrics, f"{name}_score")
            expected = score(targets, predicted, average=average, zero_division=0)
            assert found[f"{average}_{name}"] == pytest.approx(expected)


def test_nothing_predicted_counts_as_zero_without_a_warning() -> None:
    found = multi_label(np.zeros((2, 3)), np.eye(3)[:2])
    assert set(found.values()) == {0.0}


def test_per_class_gives_a_row_a_label() -> None:
    rows = per_class(PREDICTED, TARGETS, ["a", "b", "c"])
    expected = [("a", 2 / 3, 1, 4 / 5, 2), ("b", 1, 1 / 2, 2 / 3, 2), ("c", 0, 0, 0, 1)]
    names = ("label", "precision", "recall", "f1", "texts")
    assert len(rows) == 3
    for row, values in zip(rows, expected, strict=True):
        assert row == pytest.approx(dict(zip(names, values, strict=True)))
        assert isinstance(row["texts"], int)


def test_confusion_has_true_classes_down_and_predicted_across() -> None:
    scores = np.array([[0.9, 0.1, 0], [0.2, 0.7, 0], [0.3, 0.6, 0], [0.1, 0.2, 0.9]])
    targets = np.eye(3)[[0, 0, 1, 2]]
    assert confusion(scores, targets).tolist() == [[1, 1, 0], [0, 1, 0], [0, 0, 1]]


MATRIX = np.array([[3, 1], [0, 2]])


@pytest.mark.parametrize(
    ("name", "start"), [("matrix.png", PNG), ("matrix.svg", b"<?xml"), ("matrix", PNG)]
)
def test_plot_confusion_writes_a_picture_and_nothing_else(
    tmp_path: Path, name: str, start: bytes
) -> None:
    plot_confusion(MATRIX, ["spam", "ham"], tmp_path / "new" / name)
    assert [path.name for path in (tmp_path / "new").iterdir()] == [name]
    assert (tmp_path / "new" / name).read_bytes().startswith(start)


def test_plot_confusion_replaces_no_picture_by_half_of_one(tmp_path: Path) -> None:
    path = tmp_path / "matrix.unknown"
    path.write_bytes(b"old")
    with pytest.raises(ValueError, match="unknown"):
        plot_confusion(MATRIX, ["spam", "ham"], path)
    assert path.read_bytes() == b"old"
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(
    "labels",
    [
        ["$\\bad{$", "a$b$c"],  # no formulas
        ["退款", "🚀 שלום"],  # not in matplotlib's font
        ["x" * 300, "many words " * 40],
        ["", "line\nbreak"],
    ],
    ids=["dollars", "scripts", "long", "odd"],
)
def test_plot_confusion_takes_any_label(tmp_path: Path, labels: list) -> None:
    plot_confusion(MATRIX, labels, tmp_path / "matrix.png")
    assert (tmp_path / "matrix.png").read_bytes().startswith(PNG)


def test_plot_confusion_shows_labels_as_they_are(tmp_path: Path) -> None:
    from matplotlib import rc_context

    with rc_context({"svg.fonttype": "none"}):  # text stays text
        plot_confusion(MATRIX, ["$spam$", "ham & <eggs>"], tmp_path / "m.svg")
    picture = (tmp_path / "m.svg").read_text()
    assert picture.count(">$spam$</text>") == 2
    assert picture.count(">ham &amp; &lt;eggs&gt;</text>") == 2


def test_plot_confusion_of_many_classes_leaves_the_numbers_out(tmp_path: Path) -> None:
    from matplotlib import rc_context

    with rc_context({"svg.fonttype": "none"}):
        for n in (4, 31):
            matrix = np.full((n, n), 777)
            plot_confusion(matrix, [f"c{j}" for j in range(n)], tmp_path / f"{n}.svg")
    assert (tmp_path / "4.svg").read_text().count("777<") == 16
    assert (tmp_path / "31.svg").read_text().count("777<") == 0
