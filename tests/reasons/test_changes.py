"""What would change a label: found on a trained model, checked by predicting again."""

import pytest

from textcapsules.model.classifier import TextClassifier
from textcapsules.reasons.explanation import Change
from textcapsules.reasons.texts import explain, what_would_change
from toy import trained_model

TEXT = "the a my very cat purr kitten whisker was. Today it is some bird. It was my dog"


@pytest.fixture(scope="module")
def classifier() -> TextClassifier:
    return TextClassifier.load(trained_model(), "cpu")


def without(text: str, change: Change) -> str:
    for start, end in sorted(change.deleted, reverse=True):
        text = f"{text[:start]} {text[end:]}"
    return text


def test_a_given_label_is_taken_away(classifier):
    (label,) = classifier.predict(TEXT).labels
    change = what_would_change(classifier, TEXT, label)
    assert change is not None
    rest = without(TEXT, change)
    prediction = classifier.predict(rest)
    assert label not in prediction.labels
    place = classifier.labels.names.index(label)
    assert change.score == pytest.approx(float(prediction.scores[place]), abs=1e-6)
    assert 0 < len(rest.split()) < len(TEXT.split())


def test_nothing_deleted_could_be_put_back(classifier):
    (label,) = classifier.predict(TEXT).labels
    change = what_would_change(classifier, TEXT, label)
    assert change is not None
    for number in range(len(change.deleted)):
        fewer = change.deleted[:number] + change.deleted[number + 1 :]
        rest = without(TEXT, change._replace(deleted=fewer))
        assert label in classifier.predict(rest).labels


def test_a_label_is_given_by_deleting_what_speaks_against_it(classifier):
    change = what_would_change(classifier, TEXT, "dogs")
    assert change is not None
    assert classifier.predict(without(TEXT, change)).labels == ("dogs",)


def test_where_no_deletion_helps_there_is_none(classifier):
    assert what_would_change(classifier, "my cat", "dogs") is None
    assert what_would_change(classifier, "", "cats") is None
    assert what_would_change(classifier, "cat", "cats") is None  # nothing would be left


def test_explanations_hold_changes_only_if_asked(classifier):
    plain, asked = explain(classifier, TEXT), explain(classifier, TEXT, changes=True)
    (label,) = asked.predicted
    assert not any(found.change for found in plain.labels)
    changes = {found.label: found.change for found in asked.labels if found.change}
    assert changes == {label: what_would_change(classifier, TEXT, label)}
