"""The vocabulary, its file, and its agreement with the plain library."""

import json
import os
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models

from textcapsules.base.errors import ModelFolderError
from textcapsules.text.tokenize import RULES, tokenize
from textcapsules.text.vocabulary import PAD, PAD_ID, UNK, UNK_ID, TextTokenizer

TEXTS = ["a good film", "A bad film!", "good, good plot"]


@pytest.fixture
def tokenizer():
    return TextTokenizer.train(TEXTS, rule="words")


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text("ab é!X", max_size=12), max_size=6), st.integers(1, 3))
def test_words_come_by_count_then_alphabet(texts, min_count):
    counts = Counter(piece.text for text in texts for piece in tokenize(text, "words"))
    ordered = sorted(counts, key=lambda word: (-counts[word], word.encode()))
    expected = [word for word in ordered if counts[word] >= min_count]
    trained = TextTokenizer.train(texts, rule="words", min_count=min_count)
    assert trained.words == [PAD, UNK, *expected]


def test_max_words_bounds_the_counted_words_only():
    trained = TextTokenizer.train(
        iter(TEXTS), rule="words", max_words=2, extra_words=["zebra", "good", "zebra"]
    )
    assert trained.words == [PAD, UNK, "good", "a", "zebra"]
    assert trained.n_words == 5


def test_extra_words_cannot_take_the_reserved_rows():
    trained = TextTokenizer.train(["x"], rule="words", extra_words=[PAD, UNK])
    assert trained.words == [PAD, UNK, "x"]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("text", ["[PAD]", "[UNK]", "x [PAD] x", "[PAD][PAD]"])
def test_reserved_names_in_a_text_are_not_reserved(rule, text):
    trained = TextTokenizer.train(["pad unk", text], rule=rule)
    (ids,) = trained.encode([text], 10)
    assert PAD_ID not in ids
    assert UNK_ID not in ids
    assert trained.words.count(PAD) == 1


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(max_size=20), max_size=4), st.sampled_from(RULES))
def test_encode_agrees_with_tokens(texts, rule):
    trained = TextTokenizer.train(texts[:2], rule=rule)
    for text, ids in zip(texts, trained.encode(texts, 1000), strict=True):
        tokens = trained.tokens(text)
        assert [token.id for token in tokens] == ids.tolist()
        for token in tokens:
            assert token.id == UNK_ID or trained.words[token.id] == token.text


# Accents apart from their letters, removed and joining characters, emoji in parts,
# letters that change their number in lower case, and what ends a word or does not.
ODD = (
    "aB'-.,n1 \t\n\u0301\u00ad\u2060\ufeff\u200e\u200d\u1161\u11a8"
    "é中ไשعَ👩👍🏽😀İßΣﬁ…[]<"
)


@pytest.mark.parametrize("rule", RULES)
@settings(max_examples=150, deadline=None)
@given(
    texts=st.lists(st.text(max_size=20) | st.text(ODD, max_size=20), max_size=4),
    known=st.text(ODD, max_size=20),
    max_tokens=st.integers(1, 12),
)
def test_located_tokens_are_those_split_one_by_one(rule, texts, known, max_tokens):
    tokenizer = TextTokenizer.train([known], rule=rule)
    texts = [*texts, *(text + known for text in texts), known, ""]
    all_located = tokenizer.locate(texts, max_tokens)
    for text, located in zip(texts, all_located, strict=True):
        tokens = tokenizer.tokens(text)[:max_tokens]
        assert located.ids.tolist() == [token.id for token in tokens]
        assert located.places == [(token.start, token.end) for token in tokens]
        assert tokenizer.pieces(text, located) == [token[:3] for token in tokens]
    for own, ids in zip(all_located, tokenizer.encode(texts, max_tokens), strict=True):
        assert own.ids.dtype == ids.dtype == np.int32
        assert own.ids.tolist() == ids.tolist()


def test_lone_surrogates_have_their_places(tokenizer):
    (tokens,) = tokenizer.locate(["good \ud800 film"], 9)
    assert tokens.places == [(0, 4), (5, 6), (7, 11)]
    assert tokens.ids[1] == UNK_ID
    pieces = tokenizer.pieces("good \ud800 film", tokens)
    assert [piece.text for piece in pieces] == ["good", "\ufffd", "film"]


def test_encode_cuts_and_types(tokenizer):
    cut, empty = tokenizer.encode(["good good good", ""], 2)
    assert cut.dtype == np.int32
    assert len(cut) == 2
    assert empty.shape == (0,)
    assert tokenizer.encode([], 5) == []


def test_encode_takes_more_texts_than_a_chunk(tokenizer):
    encoded = tokenizer.encode(["good"] * 5000 + ["bad"], 5)
    assert len(encoded) == 5001
    assert encoded[-1].tolist() == [tokenizer.words.index("bad")]


def test_lone_surrogates_are_unknown_words(tokenizer):
    assert tokenizer.encode(["\ud800 good"], 5)[0].tolist() == [1, 2]
    assert tokenizer.tokens("\ud800 good")[1].start == 2


def test_tokens_of_unknown_words_keep_their_text(tokenizer):
    (token,) = tokenizer.tokens(" Unseen ")
    assert token == ("unseen", 1, 7, UNK_ID)


def test_max_tokens_must_be_positive(tokenizer):
    with pytest.raises(ValueError, match="max_tokens must be at least 1; got 0"):
        tokenizer.locate(TEXTS, max_tokens=0)
    with pytest.raises(ValueError, match="max_tokens must be at least 1; got 0"):
        tokenizer.encode(["a"], 0)


def test_words_are_checked():
    with pytest.raises(ValueError, match=r"words must begin with .*got \['a', 'b'\]"):
        TextTokenizer(["a", "b"], rule="kim")
    with pytest.raises(ValueError, match="words must be all different"):
        TextTokenizer([PAD, UNK, "a", "a"], rule="kim")


@pytest.mark.parametrize("rule", RULES)
def test_saved_file_serves_the_plain_library_too(tmp_path, rule):
    trained = TextTokenizer.train(TEXTS, rule=rule, extra_words=["日本", "émoi"])
    trained.save(tmp_path / "tokenizer.json")
    loaded = TextTokenizer.load(tmp_path / "tokenizer.json")
    assert (loaded.words, loaded.rule) == (trained.words, rule)
    plain = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    text = "It's a GOOD film, [PAD] don't"
    assert plain.encode(text).ids == loaded.encode([text], 99)[0].tolist()


@pytest.mark.parametrize(
    ("content", "got"),
    [
        (b"", "EOF"),
        (b"{", "EOF"),
        (b"\xff\xfe", "utf-8"),
        (b"{}", "got"),
        (b'{"model": 3}', "got"),
    ],
)
def test_damaged_file_is_refused(tmp_path, content, got):
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(ModelFolderError, match=f"must be a tokenizer.*{got}") as caught:
        TextTokenizer.load(tmp_path / "tokenizer.json")
    assert "\n" not in str(caught.value)


def test_missing_file_is_refused(tmp_path):
    with pytest.raises(ModelFolderError, match=r"tokenizer.json must be.*No such file"):
        TextTokenizer.load(tmp_path / "tokenizer.json")


def test_truncated_file_is_refused(tmp_path, tokenizer):
    tokenizer.save(tmp_path / "t.json")
    content = (tmp_path / "t.json").read_text()
    (tmp_path / "t.json").write_text(content[: len(content) // 2])
    with pytest.raises(ModelFolderError, match="must be a tokenizer saved"):
        TextTokenizer.load(tmp_path / "t.json")


def test_foreign_rule_and_foreign_rows_are_refused(tmp_path, tokenizer):
    path = tmp_path / "t.json"
    vocabulary = {PAD: 0, UNK: 1}
    Tokenizer(models.WordLevel(vocabulary, unk_token=UNK)).save(str(path))
    with pytest.raises(ModelFolderError, match="a rule that is none of kim"):
        TextTokenizer.load(path)
    tokenizer.save(path)
    content = json.loads(path.read_text())
    content["model"]["vocab"]["good"] = 99
    path.write_text(json.dumps(content))
    with pytest.raises(ModelFolderError, match="rows that do not begin"):
        TextTokenizer.load(path)


FORK = """
import os
from textcapsules.text.vocabulary import TextTokenizer
tokenizer = TextTokenizer.train(["a b"] * 5000, rule="words")
tokenizer.encode(["a b"] * 5000, 5)
child = os.fork()
if child == 0:
    os._exit(len(tokenizer.encode(["a b"] * 5000, 5)) != 5000)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_encodes_without_a_warning():
    environment = {k: v for k, v in os.environ.items() if k != "TOKENIZERS_PARALLELISM"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORK],
        capture_output=True,
        timeout=60,
        env=environment,
    )
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("words", {"film": True, "Film": False, "new_york": False, "a b": False}),
        ("kim", {"n't": True, "don't": False, "!": True, "café": False, "": False}),
        ("reuters", {"u.s.": True, "of": False, "film": True}),
    ],
)
def test_a_word_is_a_token_where_a_text_can_hold_it(rule, words):
    tokenizer = TextTokenizer.train(["some text"], rule=rule)
    assert {word: tokenizer.is_token(word) for word in words} == words


def test_further_words_come_after_a_tokenizers_own():
    tokenizer = TextTokenizer.train(["a film"], rule="words").with_words(["plot"])
    assert tokenizer.words == ["[PAD]", "[UNK]", "a", "film", "plot"]
    assert tokenizer.encode(["the plot"], 9)[0].tolist() == [1, 4]
