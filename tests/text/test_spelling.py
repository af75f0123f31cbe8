"""Misspelt words: which known words are near, against the definition itself."""

import random

import pytest

from textcapsules.text.spelling import Speller, can_be_misspelt
from textcapsules.text.vocabulary import PAD, UNK, UNK_ID, TextTokenizer

LETTERS = "abc"


def one_step(word: str) -> set[str]:
    """Return every word that one typing error inside a word makes of it."""
    made = set()
    for place in range(1, len(word) - 1):
        before, after = word[:place], word[place + 1 :]
        made.add(before + after)
        made.update(before + letter + after for letter in LETTERS)
        made.add(before + after[:1] + word[place] + after[1:])
    for place in range(1, len(word)):  # between two letters
        made.update(word[:place] + letter + word[place:] for letter in LETTERS)
    return made - {word}


def test_near_words_are_those_of_the_definition() -> None:
    draw = random.Random(0)
    words = sorted({"".join(draw.choices(LETTERS, k=6)) for _ in range(250)})
    speller = Speller([PAD, UNK, *words], first_word=2)
    typed = {known: one_step(known) for known in words}
    n_near = 0
    for length in (5, 6, 7):
        for _ in range(300):
            word = "".join(draw.choices(LETTERS, k=length))
            if word in words:
                continue
            near = {words[row - 2] for row in speller.near(word)}
            # An error of the typist makes the misspelt word of the known one.
            assert near == {known for known in words if word in typed[known]}
            rows = [words.index(known) + 2 for known in near]
            assert speller.row(word) == min(rows, default=None)
            n_near += bool(near)
    assert n_near > 100


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("invioce", "invoice"),
        ("invooice", "invoice"),
        ("invice", "invoice"),
        ("invaice", "invoice"),
        ("unvoice", None),  # another first letter
        ("invoices", None),  # another form
        ("inioce", None),  # two errors
        ("refudn", "refund"),
        ("plen", None),  # too short
        ("37521", None),
        ("возрат", "возврат"),
        ("возvрат", None),  # of two scripts
    ],
)
def test_what_is_meant(word: str, meant: str | None) -> None:
    words = [PAD, UNK, "invoice", "refund", "plan", "37021", "возврат"]
    row = Speller(words, first_word=2).row(word)
    assert (None if row is None else words[row]) == meant


def test_invented_words_stay_unknown() -> None:
    draw = random.Random(1)
    words = ["password", "invoice", "delivery", "refund", "battery", "charger"]
    speller = Speller([PAD, UNK, *words], first_word=2)
    invented = ["".join(draw.choices("bdklmnrstaeiou", k=7)) for _ in range(2000)]
    assert not any(speller.row(word) for word in invented)
    assert not can_be_misspelt("iphone12")


def test_rows_of_misspelt_words_and_their_places() -> None:
    tokenizer = TextTokenizer.train(["My kitten is Größer today"], rule="words")
    texts = ["My KITTTEN, zzzzzz", "größßer kiten", ""]
    rows = tokenizer.encode(texts, 10, nearest=True)
    kitten, larger = (tokenizer.words.index(word) for word in ("kitten", "größer"))
    assert rows[0].tolist()[1] == kitten
    assert rows[0].tolist()[3] == UNK_ID
    assert rows[1].tolist() == [larger, kitten]
    located = tokenizer.locate(texts, 10, nearest=True)
    assert [each.ids.tolist() for each in located] == [ids.tolist() for ids in rows]
    assert [texts[1][slice(*place)] for place in located[1].places] == [
        "größßer",
        "kiten",
    ]
    plain = tokenizer.encode(texts, 10)
    assert plain[1].tolist() == [UNK_ID, UNK_ID]
