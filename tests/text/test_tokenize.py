"""The rules against plain Python, and offsets against the original text."""

import re
import unicodedata

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from textcapsules.base.errors import ConfigError
from textcapsules.text.tokenize import RULES, tokenize

# Pieces that meet each other in awkward ways, beside arbitrary characters.
AWKWARD = [
    "'s",
    "n't",
    "'ll",
    "'",
    "DON'T",
    "(",
    "?",
    "é",
    "e\u0301",
    "😀",
    " ",
    "\n",
    "a",
]
texts = st.one_of(
    st.text(max_size=30),
    st.lists(st.one_of(st.sampled_from(AWKWARD), st.characters()), max_size=12).map(
        "".join
    ),
)


def kim_clean_str(text):
    """Kim (2014)'s process_data.clean_str, without its stray backslashes.

    Lower-casing comes before the contractions here: see the module's docstring.
    """
    text = re.sub(r"[^A-Za-z0-9(),!?\'\`]", " ", text).lower()
    text = re.sub(r"\'s", " 's", text)
    text = re.sub(r"\'ve", " 've", text)
    text = re.sub(r"n\'t", " n't", text)
    text = re.sub(r"\'re", " 're", text)
    text = re.sub(r"\'d", " 'd", text)
    text = re.sub(r"\'ll", " 'll", text)
    for mark in ",!()?":
        text = text.replace(mark, f" {mark} ")
    return re.sub(r"\s{2,}", " ", text).strip()


def words(text, rule):
    return [piece.text for piece in tokenize(text, rule)]


@settings(max_examples=300, deadline=None)
@given(texts)
@example("'s")
@example("n'tn't's")
@example("\u212a'll")  # the Kelvin sign lower-cases to an ASCII k
def test_kim_agrees_with_the_published_code(text):
    assert words(text, "kim") == kim_clean_str(text).split()


@settings(max_examples=150, deadline=None)
@given(texts)
def test_kim_offsets_are_the_token_itself(text):
    for piece in tokenize(text, "kim"):
        middle = piece.start + len(piece.text)
        assert text[piece.start : middle].lower() == piece.text
        # Marks over the last letter are shown with it, although the rule drops them.
        assert not re.search(r"[A-Za-z0-9\s]", text[middle : piece.end])


@settings(max_examples=150, deadline=None)
@given(texts)
def test_reuters_tokens_begin_with_a_letter_and_have_three_characters(text):
    for piece in tokenize(text, "reuters"):
        assert len(piece.text) >= 3
        assert unicodedata.category(piece.text[0])[0] in "LC"  # C: newer than Python


@settings(max_examples=300, deadline=None)
@given(texts, st.sampled_from(RULES))
@example("cafe\u0301 x", "words")
@example("\u1100\u1161\u11a8", "words")
@example("\u00ada\u00ad", "words")
def test_offsets_are_ordered_and_within_the_text(text, rule):
    end = 0
    for piece in tokenize(text, rule):
        assert end <= piece.start <= piece.end <= len(text)
        end = piece.end


@settings(max_examples=300, deadline=None)
@given(texts)
def test_words_rule_leaves_out_only_spaces_and_invisible_characters(text):
    covered = set()
    for piece in tokenize(text, "words"):
        covered.update(range(piece.start, piece.end))
    left = {unicodedata.category(text[i]) for i in range(len(text)) if i not in covered}
    assert left <= {"Zs", "Zl", "Zp", "Cc", "Cf"}


LETTERS = "abcXYZéÉñжЖ'-,.!? 你好3\u0301😀"


@settings(max_examples=150, deadline=None)
@given(st.text(LETTERS, max_size=20))
def test_words_offsets_hold_the_token(text):
    for piece in tokenize(text, "words"):
        there = unicodedata.normalize("NFC", text[piece.start : piece.end]).lower()
        assert there == piece.text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The U.S. said", ["the", "u.s.", "said"]),
        ("Mln dlrs, 3,000 of it.", ["mln", "dlrs"]),
        ("mid-1980s and/or 1980s", ["mid-1980s", "and/or"]),
        ("They don't; O'Neill's corp.", ["they", "n't", "o'neill", "corp"]),
        ('"Oil" -- said... (end)', ["oil", "said", "end"]),
    ],
)
def test_reuters_examples(text, expected):
    assert words(text, "reuters") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Don’t well-known", ["don't", "well-known"]),
        ("1,000.5 3d x²", ["1,000.5", "3d", "x²"]),
        ("你好 こんにちは", ["你", "好", "こんにちは"]),
        ("สวัสดี", ["สวัสดี"]),
        ("👨‍👩‍👧👍🏽🇩🇪!", ["👨‍👩‍👧", "👍🏽", "🇩🇪", "!"]),
        ("cafe\u0301", ["café"]),
        ("co\u00adop a\u200bb", ["coop", "a", "b"]),
        ("[PAD] a_b", ["[", "pad", "]", "a", "_", "b"]),
        ("نمی‌خواهم", ["نمی‌خواهم"]),
        ("", []),
        (" \n\t\u00a0\ufeff", []),
        ("\x00", []),
        ("\ud800a", ["\ufffd", "a"]),
    ],
)
def test_words_examples(text, expected):
    assert words(text, "words") == expected


def test_offsets_count_characters_past_the_basic_plane():
    text = "😀😀 Ünïted x"
    piece = tokenize(text, "words")[2]
    assert text[piece.start : piece.end] == "Ünïted"


def test_a_composed_character_keeps_all_its_place():
    (first, second) = tokenize("cafe\u0301 x", "words")
    assert (first.start, first.end) == (0, 5)
    assert (second.start, second.end) == (6, 7)


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("unit", ["a", "'", "a-", "1,", "\u0301", "."])
def test_long_runs_are_split_in_good_time(rule, unit):
    assert isinstance(tokenize(unit * 50_000, rule), list)


def test_unknown_rule_is_refused():
    with pytest.raises(ConfigError, match=r"rule must be one of kim.*got 'bert'"):
        tokenize("a", "bert")
