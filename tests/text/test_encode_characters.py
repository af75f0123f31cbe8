"""The rule of characters: one token each, at its place in the text."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from textcapsules.text.tokenize import ALPHABET, tokenize
from textcapsules.text.vocabulary import UNK_ID, TextTokenizer

TOKENIZER = TextTokenizer.train(["any", "texts"], rule="characters")


def test_vocabulary_is_the_alphabet_whatever_the_texts() -> None:
    other = TextTokenizer.train(["日本"], rule="characters", extra_words=["word"])
    assert other.words == TOKENIZER.words == ["[PAD]", "[UNK]", " ", *ALPHABET]
    assert TOKENIZER.first_word == 3


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        (" \t ", ""),
        ("A b", "a b"),
        ("  tab\tand\nline  ", "tab and\nline"),
        ("caf\u00e9 \U0001f4a5!", "caf\ufffd \ufffd!"),
        (
            "\u0130\u212a",
            "\ufffd\ufffd",
        ),  # lower-casing would add letters
        ("<script>[PAD]", "<script>[pad]"),
    ],
)
def test_every_character_is_a_token(text: str, expected: str) -> None:
    assert "".join(piece.text for piece in tokenize(text, "characters")) == expected


@given(st.text(max_size=40))
def test_characters_and_offsets_are_those_of_plain_python(text: str) -> None:
    pieces = tokenize(text, "characters")
    inner = [p for p in pieces if p.text in ALPHABET]
    for piece in inner:
        assert text[piece.start : piece.end].lower() == piece.text
    places = [piece.start for piece in pieces]
    assert places == sorted(set(places))
    known = [c.lower() for c in text if c.isascii() and c.lower() in ALPHABET]
    # New lines at the ends are blanks to the rule, as spaces are.
    inside = [piece.text for piece in inner]
    assert "".join(known).strip("\n") == "".join(inside).strip("\n")


def test_unknown_characters_are_unknown_and_ids_follow_the_alphabet() -> None:
    (ids,) = TOKENIZER.encode(["aé b"], 10)
    assert ids.tolist() == [3, UNK_ID, 2, 4]


def test_saved_rule_is_recognised(tmp_path: Path) -> None:
    TOKENIZER.save(tmp_path / "tokenizer.json")
    loaded = TextTokenizer.load(tmp_path / "tokenizer.json")
    assert (loaded.rule, loaded.words) == ("characters", TOKENIZER.words)
