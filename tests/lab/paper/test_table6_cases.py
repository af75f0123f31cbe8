import pytest

from random_models import random_classifier
from textcapsules.data.example import Example
from textcapsules.lab.paper.table6 import CASES, choose_cases, kind_of_case


@pytest.mark.parametrize(
    ("predicted", "case"),
    [
        ({"red": 0.9, "blue": 0.81}, "table6"),
        ({"red": 0.9, "blue": 0.7}, None),
        ({"red": 0.5, "blue": 0.45}, "a1"),
        ({"red": 0.5, "blue": 0.7}, None),
        ({"red": 0.9, "green": 0.8}, "a2"),
        ({"red": 0.9}, None),
        ({"green": 0.9}, None),
        ({}, None),
    ],
)
def test_cases_are_told_apart(predicted, case):
    assert kind_of_case({"red", "blue"}, predicted) == case


def test_cases_are_documents_with_several_labels():
    classifier = random_classifier()
    text = "w1 w2 w3 w4 w5 w6"
    labels = classifier.predict([text])[0].labels
    assert labels
    wrong = next(name for name in classifier.labels.names if name not in labels)
    examples = [Example(text, labels[:1]), Example(text, (labels[0], wrong))]
    documents = choose_cases(classifier, examples)
    assert set(documents) == set(CASES)
    expected = examples[1] if len(labels) > 1 else None
    assert documents["a2"] == expected
    assert documents["table6"] is None
