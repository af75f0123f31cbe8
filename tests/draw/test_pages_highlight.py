"""Highlights: stretches against a character-by-character count."""

import random

import pytest

from textcapsules.draw.pages import (
    Highlight,
    ListedLabel,
    cut_text,
    highlight,
    pick_lanes,
)
from textcapsules.draw.palette import label_style
from textcapsules.reasons.explanation import (
    Explanation,
    LabelExplanation,
    Phrase,
    TokenSpan,
)

TEXT = "charged twice and the app crashes"


def phrase(text: str, start: int, end: int, strength: float = 1.0) -> Phrase:
    return Phrase(text[start:end], start, end, strength, 2)


def explained(
    text: str,
    phrases: dict[str, list[Phrase]],
    predicted: tuple[str, ...],
    true: tuple[str, ...] | None = None,
) -> Explanation:
    labels = tuple(
        LabelExplanation(name, 0.5, name in predicted, tuple(own), ())
        for name, own in phrases.items()
    )
    tokens = (TokenSpan(text, 0, len(text)),)
    return Explanation(text, tokens, labels, None, 0.0, 0.0, predicted, true, "m")


def listed(text: str, *spans: list[tuple[int, int, float]]) -> list[ListedLabel]:
    return [
        ListedLabel(
            n, n, "solid", str(n), 1, "", tuple(phrase(text, *s) for s in group)
        )
        for n, group in enumerate(spans, start=1)
    ]


def joined(found: Highlight) -> str:
    return "".join(stretch.text for stretch in found.stretches)


def test_stretches_match_a_count_by_characters() -> None:
    draw = random.Random(0)
    for _ in range(200):
        text = "".join(draw.choices("ab 👩\u202e", k=draw.randint(1, 25)))
        spans = [
            [
                (start, draw.randint(start + 1, len(text)), draw.random() + 0.01)
                for start in draw.choices(range(len(text)), k=draw.randint(0, 3))
            ]
            for _ in range(3)
        ]
        stretches = cut_text(text, listed(text, *spans))
        assert "".join(stretch.text for stretch in stretches) == text
        begin = 0
        for stretch in stretches:
            for place in range(begin, begin + len(stretch.text)):
                covering = {
                    number
                    for number, own in enumerate(spans, start=1)
                    if any(start <= place < end for start, end, _ in own)
                }
                assert {mark.number for mark in stretch.marks} == covering
            begin += len(stretch.text)


def test_overlapping_labels_have_lines_of_their_own_all_along() -> None:
    # 1 and 2 overlap, and so do 2 and 3; 1 and 3 may share a line.
    spans = [[(0, 5, 1.0)], [(3, 9, 1.0)], [(7, 12, 1.0)]]
    stretches = cut_text("x" * 14, listed("x" * 14, *spans))
    lanes: dict[int, set[int]] = {}
    for stretch in stretches:
        used = [mark.lane for mark in stretch.marks]
        assert len(set(used)) == len(used)
        for mark in stretch.marks:
            lanes.setdefault(mark.number, set()).add(mark.lane)
    assert lanes == {1: {0}, 2: {1}, 3: {0}}


def test_lanes_of_no_label() -> None:
    assert pick_lanes([[], []]) == []


def test_a_number_stands_where_a_labels_claim_ends() -> None:
    stretches = cut_text("abcdef", listed("abcdef", [(0, 2, 1.0), (2, 4, 0.4)]))
    assert [(s.text, [m.ends for m in s.marks]) for s in stretches] == [
        ("ab", [False]),
        ("cd", [True]),
        ("ef", []),
    ]


def test_tint_grows_with_strength_in_three_steps() -> None:
    spans = [(0, 1, 3.0), (1, 2, 1.5), (2, 3, 0.3)]
    stretches = cut_text("abc", listed("abc", spans))
    assert [stretch.marks[0].level for stretch in stretches] == [3, 2, 1]


def test_predicted_then_missed_labels_are_listed_with_their_verdicts() -> None:
    phrases = {
        "billing": [phrase(TEXT, 0, 13, 0.7), phrase(TEXT, 18, 25, 0.4)],
        "crash": [phrase(TEXT, 22, 33, 0.02)],
        "login": [phrase(TEXT, 14, 21)],
        "other": [phrase(TEXT, 0, 7)],
    }
    found = highlight(
        explained(TEXT, phrases, ("login", "billing"), ("billing", "crash")), top=1
    )
    assert [(x.number, x.label, x.verdict) for x in found.labels] == [
        (1, "login", "wrong"),
        (2, "billing", "right"),
        (3, "crash", "missed"),
    ]
    assert [len(x.phrases) for x in found.labels] == [1, 1, 1]
    assert joined(found) == TEXT
    marked = {s.text: {m.number: m.level for m in s.marks} for s in found.stretches}
    assert marked["charged twice"] == {2: 3}
    assert marked["app crashes"] == {3: 1}  # its strongest, yet too weak for a call


def test_labels_without_known_truth_have_no_verdict() -> None:
    found = highlight(explained(TEXT, {"a": [phrase(TEXT, 0, 7)]}, ("a",)))
    assert [label.verdict for label in found.labels] == [""]


def test_phrases_that_speak_against_a_label_are_not_shown() -> None:
    found = highlight(explained(TEXT, {"a": [phrase(TEXT, 0, 7, -0.5)]}, ("a",)))
    assert found.labels[0].phrases == ()
    assert [s.marks for s in found.stretches] == [()]


def test_a_label_has_one_colour_line_and_tag_in_all_texts() -> None:
    names = [f"label {place}" for place in range(20)]
    styles: dict[str, set[tuple[int, str, str]]] = {}
    for chosen in (names, names[::-1], names[7:9], ["label 14", "label 0"]):
        found = highlight(explained(TEXT, {n: [] for n in names}, tuple(chosen)))
        for each in found.labels:
            style = (each.colour, each.line, each.tag)
            styles.setdefault(each.label, set()).add(style)
    assert all(len(used) == 1 for used in styles.values())
    (first,), (eighth,) = styles["label 0"], styles["label 7"]
    assert first[:2] == label_style(0)
    assert eighth[:2] == label_style(7)
    assert len({tag for ((_, _, tag),) in styles.values()}) == 20


@pytest.mark.parametrize("text", ["", "x"])
def test_tiny_texts(text: str) -> None:
    found = highlight(explained(text, {"a": []}, ()))
    assert joined(found) == text
    assert found.labels == ()


def test_long_texts_are_cut_where_asked() -> None:
    spans = [phrase(TEXT, 0, 7, 1.0), phrase(TEXT, 18, 25, 0.9)]
    found = highlight(explained(TEXT, {"a": spans}, ("a",)), longest=20)
    assert joined(found) == TEXT[:20] + "…"
    marked = [s.text for s in found.stretches if s.marks]
    assert marked == ["charged", "th"]
    assert len(found.labels[0].phrases) == 2
    assert joined(highlight(explained(TEXT, {"a": spans}, ("a",)), longest=33)) == TEXT
