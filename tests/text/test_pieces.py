"""Texts as word pieces, sentence by sentence."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers

from textcapsules.base.errors import ModelFolderError
from textcapsules.text.encode import count_words
from textcapsules.text.pieces import (
    FIRST_PIECE,
    PieceTokenizer,
    clause_places,
    sentence_places,
    split_sentences,
)
from textcapsules.text.vocabulary import UNK_ID
from tiny_encoder import write_encoder

TEXT = "My cat purrs. The app crashes!"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_encoder(tmp_path_factory.mktemp("encoder")) / "tokenizer.json"


@pytest.fixture(scope="module")
def tokenizer(file: Path) -> PieceTokenizer:
    return PieceTokenizer.load(file, max_pieces=20)


def plain_pieces(file: Path, text: str) -> list[int]:
    """Return what the library itself makes of a text, nothing cut or added."""
    plain = Tokenizer.from_file(str(file))
    plain.no_truncation()
    plain.no_padding()
    return plain.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        ("no stop at all", ["no stop at all"]),
        ("It cost $3.50. Fine.", ["It cost $3.50.", "Fine."]),
        ("Ask Mr. Smith of Acme Inc. today. Thanks", 2),
        ("in the U.S. and J. R. Smith's", 1),
        ("so do i. and you?", ["so do i.", "and you?"]),
        ('He said "stop." Then he left.', ['He said "stop."', "Then he left."]),
        ("one\n\ntwo\n- three\n- four", ["one", "two", "- three", "- four"]),
        ("Wait... what?! No.", ["Wait...", "what?!", "No."]),
        ("", []),
        (" \n ", []),
    ],
)
def test_text_is_cut_into_sentences(text: str, sentences: list[str] | int) -> None:
    found = [text[start:end] for start, end in sentence_places(text)]
    if isinstance(sentences, int):
        assert len(found) == sentences
    else:
        assert found == sentences


@pytest.mark.parametrize(
    ("text", "clauses"),
    [
        ("I paid it twice, and the app crashes.", 2),
        ("I paid it twice; but then the app crashes.", 2),
        ("I paid it twice and the app crashes.", 1),  # no comma
        ("Salt, and a bit of pepper.", 1),  # too few words before
        ("We sell bread and salt, and pepper too.", 1),  # and after
        ("It was late, so I left, but she stayed there. Fine.", 4),
        ("I paid it twice, android crashes all the time.", 1),  # no word of a clause
        ("", 0),
    ],
)
def test_sentence_is_cut_into_clauses(text: str, clauses: int) -> None:
    found = [text[start:end] for start, end in clause_places(text)]
    assert len(found) == clauses
    assert " ".join(found) == text


def test_what_is_encoded_by_itself_can_be_chosen(tokenizer: PieceTokenizer) -> None:
    text = "my cat purrs it, and the dog barks it. hello"
    clauses = tokenizer.cut_by("clauses")
    for reader, n_parts in ((tokenizer, 2), (clauses, 3), (tokenizer, 2)):
        [rows] = reader.encode([text], 100)
        parts = split_sentences(rows.astype(np.int64), tokenizer.n_pieces)
        assert len(parts) == n_parts


@given(
    st.one_of(
        st.text(alphabet="ab.!?\n \"')$1é漢-", max_size=60),
        st.lists(st.sampled_from(["and", "but", ",", ";", "b", "."])).map(" ".join),
    ),
    st.sampled_from([sentence_places, clause_places]),
)
def test_sentences_hold_every_character_that_is_no_blank_once(
    text: str, places_of: Callable[[str], list[tuple[int, int]]]
) -> None:
    places = places_of(text)
    inside = [n for start, end in places for n in range(start, end)]
    assert inside == sorted(set(inside))
    assert {n for n, c in enumerate(text) if not c.isspace()} <= set(inside)


def test_rows_are_the_librarys_pieces_and_know_where_sentences_begin(
    file: Path, tokenizer: PieceTokenizer
) -> None:
    (rows,) = tokenizer.encode([TEXT], 100)
    sentences = split_sentences(rows.astype(np.int64), tokenizer.n_pieces)
    assert [each.tolist() for each in sentences] == [
        plain_pieces(file, "My cat purrs."),
        plain_pieces(file, "The app crashes!"),
    ]


def test_joined_documents_keep_their_sentences(tokenizer: PieceTokenizer) -> None:
    first, second = tokenizer.encode([TEXT, "dog barks"], 100)
    joined = np.concatenate([first, second]).astype(np.int64)
    assert len(split_sentences(joined, tokenizer.n_pieces)) == 3
    (inner,) = split_sentences(first[1:4].astype(np.int64), tokenizer.n_pieces)
    assert len(inner) == 3  # a stretch that begins inside a sentence


def test_places_are_where_the_pieces_stand(tokenizer: PieceTokenizer) -> None:
    ((ids, places),) = tokenizer.locate([TEXT], 100)
    assert len(ids) == len(places)
    pieces = [TEXT[start:end] for start, end in places]
    assert pieces[:4] == ["My", "cat", "purr", "s"]
    assert "".join(pieces) == TEXT.replace(" ", "")


def test_a_text_that_names_special_tokens_means_their_letters(
    tokenizer: PieceTokenizer,
) -> None:
    (rows,) = tokenizer.encode(["[SEP] [PAD] [CLS]"], 100)
    specials = {FIRST_PIECE + n for n in range(4)}
    specials |= {row + tokenizer.n_pieces for row in specials}
    assert not specials & set(rows.tolist())


def test_unknown_words_have_the_unknown_row_and_do_not_hide_a_beginning(
    tokenizer: PieceTokenizer,
) -> None:
    (rows,) = tokenizer.encode(["☃ my cat"], 100)
    assert rows[0] == UNK_ID
    assert rows[1] >= FIRST_PIECE + tokenizer.n_pieces


def test_a_sentence_longer_than_the_encoder_reads_is_cut(
    tokenizer: PieceTokenizer,
) -> None:
    (rows,) = tokenizer.encode(["cat " * 50], 100)
    sizes = [len(s) for s in split_sentences(rows.astype(int), tokenizer.n_pieces)]
    assert sizes == [20, 20, 10]


def test_no_more_than_max_tokens_are_read(tokenizer: PieceTokenizer) -> None:
    whole, cut = tokenizer.encode([TEXT], 100)[0], tokenizer.encode([TEXT], 5)[0]
    assert cut.tolist() == whole[:5].tolist()
    with pytest.raises(ValueError, match="max_tokens must be at least 1; got 0"):
        tokenizer.encode([TEXT], 0)


def test_saved_tokenizer_gives_the_same_rows(
    tokenizer: PieceTokenizer, tmp_path: Path
) -> None:
    tokenizer.save(tmp_path / "tokenizer.json")
    again = PieceTokenizer.load(tmp_path / "tokenizer.json", max_pieces=20)
    assert (
        again.encode([TEXT], 100)[0].tolist()
        == tokenizer.encode([TEXT], 100)[0].tolist()
    )


def test_a_file_that_is_no_tokenizer_is_named(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelFolderError, match=r"tokenizer\.json must be a tokenizer"):
        PieceTokenizer.load(tmp_path / "tokenizer.json", max_pieces=20)


def test_stretches_joined_inside_a_sentence_are_cut(tokenizer: PieceTokenizer) -> None:
    (rows,) = tokenizer.encode(["cat " * 15], 100)
    joined = np.concatenate([rows, rows[3:]]).astype(np.int64)
    sentences = split_sentences(joined, tokenizer.n_pieces, max_pieces=20)
    assert [len(each) for each in sentences] == [20, 7]
    (empty,) = split_sentences(joined[:0], tokenizer.n_pieces, max_pieces=20)
    assert len(empty) == 0


def test_words_are_counted_not_their_pieces(tokenizer: PieceTokenizer) -> None:
    text = "cats purring unbelievably crashes. app purring"
    (rows,) = tokenizer.encode([text], 100)
    counts = count_words([rows], tokenizer.first_word, tokenizer.continues)
    assert len(rows) > 7
    assert counts.words.tolist() == [7]  # six words and a stop


def test_words_are_counted_where_pieces_mark_their_beginning() -> None:
    pieces = [("<unk>", 0.0), ("▁cat", -1.0), ("▁dog", -1.0), ("s", -1.0), (".", -1.0)]
    library = Tokenizer(models.Unigram(pieces, unk_id=0))
    library.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer = PieceTokenizer(library.to_str(), max_pieces=20)
    (rows,) = tokenizer.encode(["cats dogs. dog"], 100)
    counts = count_words([rows], tokenizer.first_word, tokenizer.continues)
    assert len(rows) == 6
    assert counts.words.tolist() == [4]


def test_whole_texts_have_no_marks_and_windows_are_cut_by_length(file: Path) -> None:
    whole = PieceTokenizer.load(file, max_pieces=5).cut_by("texts")
    assert whole.reads_whole and whole.n_marked is None
    (rows,) = whole.encode([f" {TEXT} "], 100)
    plain = plain_pieces(file, TEXT)
    assert rows.tolist() == [FIRST_PIECE + piece for piece in plain]
    twice = np.concatenate([rows, rows]).astype(np.int64)
    windows = split_sentences(twice, whole.n_pieces, 5)
    expected = [(plain * 2)[start : start + 5] for start in range(0, len(twice), 5)]
    assert [window.tolist() for window in windows] == expected
    places = whole.locate([f" {TEXT} "], 100)[0].places
    assert places[0] == (1, 3)  # where they stand in the text itself
    assert PieceTokenizer.load(file, max_pieces=5).n_marked == whole.n_pieces
