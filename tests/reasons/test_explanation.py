"""Values that come later are, to their reader, the same as given ones."""

import copy
import pickle
import sys
from dataclasses import FrozenInstanceError, dataclass, replace

import pytest

from random_models import random_classifier
from textcapsules.base.errors import ConfigError
from textcapsules.reasons.explanation import Deferred, Explanation
from textcapsules.reasons.methods import capsule_network
from textcapsules.reasons.texts import explain

TEXTS = ["w1 w2 w3 w4 w5", "", "w6 unknown w7"]


@dataclass(frozen=True, slots=True)
class Sum(Deferred):
    a: int
    b: int
    total: int


class Adder:
    def __init__(self) -> None:
        self.calls = 0

    def total(self) -> int:
        self.calls += 1
        return 3


def test_a_value_is_found_once_and_only_when_read():
    source = Adder()
    value = Sum.later(source, a=1, b=2)
    assert (value.a, value.b, source.calls) == (1, 2, 0)
    assert value.total == value.total == 3
    assert source.calls == 1


def test_it_is_as_good_as_a_given_value():
    given = Sum(1, 2, 3)
    assert Sum.later(Adder(), a=1, b=2) == given
    assert hash(Sum.later(Adder(), a=1, b=2)) == hash(given)
    assert repr(Sum.later(Adder(), a=1, b=2)) == repr(given)
    assert replace(Sum.later(Adder(), a=1, b=2), a=7) == Sum(7, 2, 3)
    assert copy.deepcopy(Sum.later(Adder(), a=1, b=2)) == given
    assert pickle.loads(pickle.dumps(Sum.later(Adder(), a=1, b=2))) == given


def test_it_has_no_other_names_and_cannot_be_changed():
    for value in (Sum(1, 2, 3), Sum.later(Adder(), a=1, b=2)):
        with pytest.raises(AttributeError, match="'Sum' object has no attribute 'c'"):
            _ = value.c  # type: ignore[attr-defined]
        with pytest.raises(FrozenInstanceError):
            value.a = 2  # type: ignore[misc]


def test_explanations_survive_a_pickle_read_or_not():
    classifier = random_classifier()
    read, unread = explain(classifier, TEXTS), explain(classifier, TEXTS)
    expected = [explanation.to_dict() for explanation in read]
    again = pickle.loads(pickle.dumps(unread))
    assert again == read
    assert [explanation.to_dict() for explanation in again] == expected


def test_the_network_runs_no_more_whatever_is_read():
    """Once for the strengths, and for all that is deleted from a batch together."""
    classifier = random_classifier()
    calls = []
    network = capsule_network(classifier)
    network.register_forward_hook(lambda *_: calls.append(1))
    explanations = explain(classifier, TEXTS, verify=False)
    assert len(calls) == 1
    explanations += explain(classifier, TEXTS)
    n_calls = len(calls)
    for explanation in explanations:
        explanation.to_dict()
    assert len(calls) == n_calls <= 4


def test_what_is_read_later_is_of_the_model_as_it_was():
    classifier = random_classifier()
    expected = [explanation.to_dict() for explanation in explain(classifier, TEXTS)]
    found = explain(classifier, TEXTS)
    for weight in capsule_network(classifier).parameters():
        weight.data.zero_()
    assert [explanation.to_dict() for explanation in found] == expected


def random_explanation() -> Explanation:
    return explain(random_classifier(), TEXTS[0])


def test_a_data_frame_has_a_row_per_label_and_phrase() -> None:
    pytest.importorskip("pandas")
    explanation = random_explanation()
    frame = explanation.to_dataframe()
    expected = [
        (label.label, label.score, label.threshold, label.predicted, *phrase[:4])
        for label in explanation.labels
        for phrase in label.phrases
    ]
    kept = frame[frame["phrase"] != ""]
    assert [tuple(row) for row in kept.itertuples(index=False)] == expected
    assert list(frame.columns) == [
        *("label", "score", "threshold", "given"),
        *("phrase", "start", "end", "strength"),
    ]
    assert set(frame["label"]) == {label.label for label in explanation.labels}


def test_a_data_frame_without_pandas_says_what_to_install(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ConfigError, match="pandas must be installed"):
        random_explanation().to_dataframe()


def test_a_picture_is_written(tmp_path) -> None:
    random_explanation().to_png(tmp_path / "why.png")
    assert (tmp_path / "why.png").read_bytes().startswith(b"\x89PNG")
