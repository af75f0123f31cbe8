"""The method that training chooses, what the record keeps, and what it warns of."""

import json

import numpy as np
import pytest

from random_models import WORDS, random_classifier
from textcapsules.model.classifier import TextClassifier
from textcapsules.reasons.choice import MAX_TOKENS, measure_reasons, warn_of_method
from textcapsules.reasons.faithfulness import BY_COST, Remaining, cheapest
from textcapsules.reasons.methods import METHODS, default_method
from toy import toy_rows, trained_model


def remaining(gaps: list[float]) -> Remaining:
    kept = np.array(gaps)[:, None]
    return Remaining(np.zeros_like(kept), kept)


def test_the_cheapest_method_within_an_error_of_the_best_is_taken():
    measured = {
        "couplings": remaining([0.1, 0.3, 0.2, 0.2]),
        "contributions": remaining([0.8, 0.7, 0.9, 0.8]),
        "integrated": remaining([0.9, 0.6, 0.9, 0.9]),
    }
    methods = list(measured)
    assert cheapest(measured, methods, "integrated") == "contributions"
    measured["integrated"] = remaining([0.9, 0.8, 1.0, 0.9])
    assert cheapest(measured, methods, "integrated") == "integrated"
    assert set(BY_COST) == set(METHODS)


def test_training_measures_and_keeps_the_default():
    record = json.loads((trained_model() / "training.json").read_text())["reasons"]
    classifier = TextClassifier.load(trained_model(), "cpu")
    assert default_method(classifier) == record["method"]
    assert set(record["methods"]) == {
        *("contributions", "couplings", "gradient", "sampled", "random"),
    }
    best = min(record["methods"].values(), key=lambda row: row["behind"])
    assert best["behind"] == 0
    chosen = record["methods"][record["method"]]
    assert chosen["behind"] <= chosen["behind_error"] + 1e-4
    texts = [text for text, _ in toy_rows(12, seed=5)]
    again = [measure_reasons(classifier, texts) for _ in range(2)]
    assert again[0] == again[1]


def test_a_model_without_a_measurement_has_a_default_too():
    classifier = random_classifier()
    assert default_method(classifier) == "contributions"
    for damaged in (None, "contributions", {}, {"method": "magic"}):
        classifier.record = {"reasons": damaged}
        assert default_method(classifier) == "contributions"
    classifier.record = {"reasons": {"method": "gradient"}}
    assert default_method(classifier) == "gradient"


def test_the_sample_is_bounded_by_its_tokens():
    classifier = random_classifier(max_tokens=500)
    measured = measure_reasons(classifier, [" ".join(WORDS) * 15] * 30)
    assert measured is not None
    words = len((" ".join(WORDS) * 15).split())
    assert measured["texts"] == MAX_TOKENS // words < 30


def test_where_no_text_gets_a_label_nothing_is_chosen():
    assert measure_reasons(random_classifier(), ["unknown words"]) is None
    assert measure_reasons(random_classifier(), []) is None


@pytest.mark.parametrize(
    ("cases", "behind", "warns"), [(30, 0.3, True), (30, 0.1, False), (5, 0.3, False)]
)
def test_a_method_that_loses_clearly_is_warned_of(cases, behind, warns):
    classifier = random_classifier()
    row = {"behind": behind, "behind_error": 0.1}
    classifier.record = {
        "reasons": {
            **{"method": "contributions", "texts": 30, "cases": cases},
            "methods": {"couplings": row},
        }
    }
    message = warn_of_method(classifier, "couplings")
    assert (message is not None) == warns
    assert warn_of_method(classifier, "gradient") is None
    assert warn_of_method(random_classifier(), "couplings") is None
