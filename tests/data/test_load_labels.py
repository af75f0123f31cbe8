import pytest

from textcapsules.base.errors import collect_warnings
from textcapsules.data.example import Example
from textcapsules.data.load import check_labels


def warnings_of(*labels: str) -> list[str]:
    with collect_warnings() as warnings:
        check_labels("t.csv", [Example("x", (label,)) for label in labels])
    return warnings


@pytest.mark.parametrize("name", ["nan", "NaN", "null", "NULL", "None", "none", "N/A"])
def test_missing_value_as_a_class_is_told_with_its_count(name):
    (warning,) = warnings_of("a", name, name)
    assert f"label {name!r} of 2 texts is taken as the name of a class" in warning


def test_labels_that_differ_in_case_or_spacing_are_told_together():
    (warning,) = warnings_of("love", "LOVE", "love", "Love", "hate")
    assert warning == (
        "t.csv: labels 'LOVE' (1 text), 'Love' (1 text) and 'love' (2 texts) differ "
        "only in case or spacing and are taken as 3 classes. Spell them alike if they "
        "are one."
    )
    assert len(warnings_of("log in", "Log  in", "café", "cafe\u0301", "b")) == 2


def test_other_labels_are_not_told():
    assert warnings_of("a", "b", "nano", "nonesuch", "a b", "ab", "a") == []


def test_cells_of_several_labels_are_told_with_what_stands_between_them():
    (warning,) = warnings_of("room", "location; room", "food", "food;location", "room")
    assert warning == (
        "t.csv: 2 of 4 labels, as 'food;location', are made of others, and each of "
        "them is taken as a class of its own. If several labels stand in one cell, "
        "pass --separator ';'."
    )
    assert "--separator '|'" in warnings_of("a|b|c", "a", "b", "c")[0]
    # Names that happen to have such a character are no sets of labels.
    assert warnings_of("food, drinks", "toys, games", "and/or", "books") == []
