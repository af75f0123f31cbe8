import json

import numpy as np
import pytest
from sklearn import metrics

from textcapsules.base.errors import DataError
from textcapsules.data.example import Example
from textcapsules.inference.evaluate import evaluate, evaluate_scores
from textcapsules.model.classifier import TextClassifier
from toy import toy_rows, trained_model

NAMES = ("a", "b", "c")
# The fifth text has no known word: every score is zero.
SCORES = np.array(
    [
        [0.9, 0.2, 0.1],
        [0.4, 0.6, 0.5],
        [0.7, 0.1, 0.3],
        [0.1, 0.2, 0.8],
        [0.0, 0.0, 0.0],
        [0.3, 0.55, 0.2],
    ],
    np.float32,
)
SINGLE = np.eye(3, dtype=np.float32)[[0, 2, 0, 2, 0, 1]]
SEVERAL = np.array(
    [[1, 0, 0], [0, 1, 1], [1, 1, 0], [0, 0, 1], [0, 1, 0], [1, 1, 0]], np.float32
)


def test_accuracy_counts_a_text_without_words_as_wrong():
    result = evaluate_scores(SCORES, SINGLE, NAMES, 0.5, several=False)
    assert result.single_label is not None
    assert result.single_label["accuracy"] == pytest.approx(4 / 6)  # by hand
    guess = np.array([0, 1, 0, 2, 3, 1])  # 3: none
    expected = metrics.f1_score(
        SINGLE.argmax(1), guess, labels=[0, 1, 2], average="macro"
    )
    assert result.single_label["macro_f1"] == pytest.approx(expected)


def test_confusion_is_counted_by_hand():
    result = evaluate_scores(SCORES, SINGLE, NAMES, 0.5, several=False)
    assert result.confusion is not None
    assert result.confusion.tolist() == [[2, 0, 0], [0, 1, 0], [0, 1, 1]]


def test_per_class_of_one_label_follows_the_highest_score():
    rows = evaluate_scores(SCORES, SINGLE, NAMES, 0.5, several=False).per_class
    assert [row["label"] for row in rows] == list(NAMES)
    assert [row["texts"] for row in rows] == [3, 1, 2]
    # a: guessed twice, rightly, of three; b: guessed twice, once rightly; c: one of two
    assert [row["precision"] for row in rows] == [1.0, 0.5, 1.0]
    assert [row["recall"] for row in rows] == pytest.approx([2 / 3, 1.0, 0.5])


@pytest.mark.parametrize("threshold", [0.5, 0.25, 0.0])
@pytest.mark.parametrize("average", ["micro", "macro", "samples"])
def test_averages_equal_sklearns(average, threshold):
    result = evaluate_scores(SCORES, SEVERAL, NAMES, threshold, several=True)
    past = threshold <= SCORES
    past[4] = False  # nothing is known of that text, whatever the threshold
    p, r, f, _ = metrics.precision_recall_fscore_support(
        SEVERAL.astype(int),
        past.astype(int),
        average=average,
        zero_division=0,  # type: ignore[arg-type]
    )
    found = [
        result.multi_label[f"{average}_{n}"] for n in ("precision", "recall", "f1")
    ]
    assert found == pytest.approx([p, r, f])
    exact = metrics.accuracy_score(SEVERAL.astype(int), past.astype(int))
    assert result.multi_label["exact_match"] == pytest.approx(exact)


def test_thresholds_may_differ_by_class():
    result = evaluate_scores(SCORES, SEVERAL, NAMES, (0.5, 0.6, 0.7), several=True)
    # right: the first, and the fourth; the second lacks c, the third b
    assert result.multi_label["exact_match"] == pytest.approx(2 / 6)
    assert result.multi_label_at_half["exact_match"] == pytest.approx(3 / 6)


def test_several_labels_have_no_accuracy_and_no_confusion():
    result = evaluate_scores(SCORES, SEVERAL, NAMES, 0.5, several=True)
    assert result.single_label is None
    assert result.confusion is None
    assert json.loads(json.dumps(result.to_dict()))["confusion"] is None


@pytest.fixture(scope="module")
def classifier() -> TextClassifier:
    return TextClassifier.load(trained_model())


def test_classifier_is_judged_by_its_own_predictions(classifier):
    examples = [Example(text, (label,)) for text, label in toy_rows(30, seed=8)]
    examples.append(Example("zzz qqq", ("cats",)))
    result = evaluate(classifier, examples)
    texts = [example.text for example in examples]
    guess = [p.labels[0] if p.labels else "none" for p in classifier.predict(texts)]
    truth = [example.labels[0] for example in examples]
    assert result.texts == 31
    assert result.single_label is not None
    assert result.single_label["accuracy"] == metrics.accuracy_score(truth, guess)
    for row in result.per_class:
        hits = [g == t for g, t in zip(guess, truth, strict=True) if t == row["label"]]
        assert row["recall"] == pytest.approx(np.mean(hits))
    calibrated = classifier.predict(texts, multi_label=True)
    exact = np.mean(
        [p.labels == e.labels for p, e in zip(calibrated, examples, strict=True)]
    )
    assert result.multi_label["exact_match"] == pytest.approx(exact)


def test_given_threshold_takes_the_place_of_the_calibrated(classifier):
    examples = [Example(text, (label,)) for text, label in toy_rows(12, seed=8)]
    result = evaluate(classifier, examples, threshold=0.5)
    assert result.multi_label == result.multi_label_at_half
    assert evaluate(classifier, examples, threshold=1.0).multi_label["micro_f1"] == 0


def test_label_never_seen_is_told(classifier):
    examples = [Example("my cat", ("cats",)), Example("my cow", ("cows",))]
    with pytest.raises(
        DataError, match=r"one of birds, cats, dogs; got 'cows' in row 2 of more.csv"
    ):
        evaluate(classifier, examples, source="more.csv")


def test_nothing_to_judge_is_told(classifier):
    with pytest.raises(DataError, match=r"more.csv must hold at least one labelled"):
        evaluate(classifier, [], source="more.csv")


def test_refused_texts_count_as_without_a_label():
    outside = np.array([True] + [False] * (len(SCORES) - 1))
    refused = SCORES.copy()
    refused[0] = 0
    given = (SINGLE, NAMES, 0.5)
    found = evaluate_scores(SCORES, *given, several=True, outside=outside)
    expected = evaluate_scores(refused, *given, several=True)
    assert found.refused == 1
    assert found.multi_label == expected.multi_label
    assert found.single_label == expected.single_label
    assert found.per_class == expected.per_class
    assert found.to_dict()["refused"] == 1
