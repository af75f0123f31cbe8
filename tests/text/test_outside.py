"""Texts outside the topics, by the surprisal of their words: against values by hand."""

import math

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from textcapsules.base.errors import ModelFolderError
from textcapsules.text import outside
from textcapsules.text.outside import (
    FEW_TEXTS,
    Contrast,
    OutsideRule,
    equal_label_weights,
    fit_outside,
    pick_limit,
    text_units,
)
from textcapsules.text.pieces import PieceTokenizer
from textcapsules.text.vocabulary import TextTokenizer

WORDS = TextTokenizer.train(["a a a b b c"], rule="words")  # rows 2, 3, 4


def ids(*rows: int) -> np.ndarray:
    return np.array(rows, np.int32)


def test_evidence_is_the_mean_of_squares_with_two_words_more():
    table = np.array([0, 160, 16, 32, 48], np.uint8)  # surprisals 0, 10, 1, 2, 3
    rule = OutsideRule(table, prior=2.5, limit=20.0)
    documents = [ids(2, 3, 4), ids(1, 1, 1, 2), ids(), ids(2)]
    expected = [  # the highest of each is 2.5 instead
        (1 + 4 + 2.5 + 5) / 5,
        (100 + 100 + 2.5 + 1 + 5) / 6,
        2.5,
        (2.5 + 5) / 3,
    ]
    assert rule.evidence(documents, WORDS).tolist() == pytest.approx(expected)
    assert rule.outside(documents, WORDS).tolist() == [False, True, False, False]
    assert rule.outside([], WORDS).tolist() == []


def test_surprisals_are_those_of_smoothed_counts_in_sixteenths():
    train = [ids(2, 2, 2), ids(3, 3, 4, 1)]  # the unknown word is no word of its own
    rule = fit_outside(train, [ids(2, 1)] * FEW_TEXTS, WORDS)
    assert rule is not None
    total = 6 + 3  # words, and kinds of words

    def surprisal(count: float) -> float:
        return round(-16 * math.log((count + 0.5) / total)) / 16

    steps = (rule.surprisal / 16).tolist()
    assert steps[1:] == [surprisal(count) for count in (0, 3, 2, 1)]
    assert rule.prior == pytest.approx((surprisal(3) ** 2 + surprisal(0) ** 2) / 2)
    # All dev texts are alike, so that none exceeds the limit.
    figures = {"texts": 30, "refused": 0, "share": 0.01, "new_words": 0.5}
    assert rule.figures == figures
    # Two words: the known one, and the prior in place of the unknown one.
    expected = (surprisal(3) ** 2 + 3 * rule.prior) / 4
    assert rule.limit == pytest.approx(expected)


def test_evidence_of_a_text_does_not_depend_on_company(monkeypatch):
    draw = np.random.default_rng(0)
    table = draw.integers(0, 250, 200).astype(np.uint8)
    rule = OutsideRule(table, prior=31.7, limit=20.0)
    lengths = (0, 5, 1, 300, 0, 129, 8, 17, 2, 0)
    texts = [draw.integers(1, 200, n).astype(np.int32) for n in lengths]
    alone = []
    for text in texts:
        squares = (table[text] / 16) ** 2
        added = 3 * 31.7 - squares.max() if len(text) else 0.0
        alone.append((squares.sum() + added) / (len(text) + 2) if len(text) else 31.7)
    assert rule.evidence(texts, WORDS).tolist() == alone  # to the last bit
    monkeypatch.setattr(outside, "TEXTS_AT_ONCE", 3)
    assert rule.evidence(texts, WORDS).tolist() == alone


def test_length_adds_no_evidence_and_one_word_is_none():
    rule = OutsideRule(np.array([0, 160, 16, 32, 48], np.uint8), 2.5, 20.0)
    long, longer = rule.evidence([ids(*[2, 3, 4] * n) for n in (200, 400)], WORDS)
    assert long == pytest.approx(14 / 3, abs=0.02)  # the mean itself
    assert longer == pytest.approx(long, abs=0.02)
    known, with_unknown = rule.evidence([ids(2, 2, 2), ids(2, 1, 2)], WORDS)
    assert known == with_unknown


def test_limit_is_a_rank_of_many_and_a_normal_tail_of_few():
    assert pick_limit(np.random.default_rng(0).permutation(np.arange(1000.0))) == 989.0
    few = np.array([0.0, 2.0] * 20)
    spread = math.sqrt(40 / 39)
    assert pick_limit(few) == pytest.approx(1 + 2.326 * spread)
    assert pick_limit(np.array([0.0] * 39 + [100.0])) == 100.0


def test_general_texts_tell_common_words_from_those_of_the_topics():
    # "a" is common everywhere, "b" is a word of the topics, "c" one of general texts.
    train, general = [ids(2, 3, 3)] * 100 + [ids(4)], [ids(2, 4, 4)] * 50
    dev = [ids(2, 3, 3)] * 38 + [ids(2, 2, 2, 3)] * 2
    rule = fit_outside(train, dev, WORDS, general=general)
    assert rule is not None and rule.contrast is not None
    # Words, and kinds of words: 301 + 3 and 150 + 2.
    shares = {2: (100.5 / 304, 50.5 / 152), 3: (200.5 / 304, 0.5 / 152)}
    shares |= {4: (1.5 / 304, 100.5 / 152), 1: (0.5 / 304, 0.5 / 152)}
    pairs = [shares[row] for row in range(1, 5)]
    expected = [np.clip(math.log(g / t), -5, 5) for t, g in pairs]
    assert rule.contrast.values[1:] == pytest.approx(expected, abs=1 / 32)
    texts = [ids(2, 3, 3), ids(2, 4, 4), ids(2, 3, 3, 3, 4), ids()]
    assert rule.outside(texts, WORDS).tolist() == [False, True, False, False]
    alone = fit_outside(train, dev, WORDS)
    assert alone is not None and alone.contrast is None


def test_labels_weigh_the_same_in_the_limit():
    evidence = np.concatenate([np.zeros(900), np.arange(100.0)])
    weights = equal_label_weights([("many",)] * 900 + [("few",)] * 100)
    assert pick_limit(evidence) == 89.0  # a tenth of the few would be refused
    assert pick_limit(evidence, weights) == 97.0
    # One text hardly speaks for a label.
    weights = equal_label_weights([("many",)] * 999 + [("one",)])
    assert weights[-1] == 1 / 5


def test_too_few_texts_give_no_rule():
    train = [ids(2, 3)] * 100
    assert fit_outside(train, [ids(2)] * (FEW_TEXTS - 1), WORDS) is None
    # Empty texts are no texts to choose a limit on.
    assert fit_outside(train, [ids(2)] * 29 + [ids()] * 9, WORDS) is None


def test_piece_is_the_same_where_a_sentence_begins():
    pieces = Tokenizer(models.WordPiece({"[UNK]": 0, "cat": 1, ".": 2}))
    pieces.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer = PieceTokenizer(pieces.to_str(), max_pieces=100)
    (document,) = tokenizer.encode(["cat. cat cat"], 100)
    units = text_units(document, tokenizer)
    assert units[0] == units[-1] == document[-1] != document[0]


def test_characters_count_three_by_three():
    tokenizer = TextTokenizer.train([], rule="characters")
    n = tokenizer.n_words
    assert text_units(ids(3, 4, 5, 6), tokenizer).tolist() == [
        (3 * n + 4) * n + 5,
        (4 * n + 5) * n + 6,
    ]
    assert len(text_units(ids(3, 4), tokenizer)) == 0


def test_rule_of_characters_tells_noise_from_words():
    tokenizer = TextTokenizer.train([], rule="characters")
    texts = [f"the {one} sees the {two}" for one in CREATURES for two in CREATURES]
    known, new = (
        tokenizer.encode(texts, 200),
        ["xqzj vwkx qqzx", "the pig sees the goat"],
    )
    rule = fit_outside(known[::2], known[1::2], tokenizer)
    assert rule is not None
    assert rule.outside(tokenizer.encode(new, 200), tokenizer).tolist() == [True, False]


CREATURES = ["dog", "cat", "cow", "hen", "pig", "goat", "duck", "horse"]


@pytest.fixture
def saved(tmp_path):
    table = np.arange(WORDS.n_words, dtype=np.uint8)
    rule = OutsideRule(table, 0.1 + 0.2, 1 / 3, {"texts": 40})
    rule.save(tmp_path / "outside.safetensors")
    return rule, tmp_path / "outside.safetensors"


def test_file_holds_the_rule_to_the_last_bit(saved):
    rule, path = saved
    again = OutsideRule.load(path, WORDS)
    assert np.array_equal(again.surprisal, rule.surprisal)
    assert again.to_dict() == rule.to_dict()
    assert rule.to_dict() == {"limit": 1 / 3, "prior": 0.1 + 0.2, "texts": 40}
    assert again.contrast is None  # as in folders of earlier versions
    contrast = Contrast(np.arange(-2, 3, dtype=np.int8), -0.1, 0.7)
    OutsideRule(rule.surprisal, 1.0, 2.0, {}, contrast).save(path)
    again = OutsideRule.load(path, WORDS)
    assert again.contrast is not None
    assert again.contrast.table.tolist() == [-2, -1, 0, 1, 2]
    assert again.to_dict()["contrast"] == {"limit": 0.7, "prior": -0.1}


def test_file_of_other_words_is_refused(saved):
    other = TextTokenizer.train(["a a a b b c d e"], rule="words")
    with pytest.raises(ModelFolderError, match=r"outside\.safetensors must hold"):
        OutsideRule.load(saved[1], other)


@pytest.mark.parametrize("content", [b"", b"nonsense", b"\xff" * 200])
def test_damaged_file_is_refused(saved, content):
    saved[1].write_bytes(content)
    with pytest.raises(ModelFolderError, match="Restore the folder"):
        OutsideRule.load(saved[1], WORDS)


def test_number_that_is_none_is_refused(saved):
    rule, path = saved
    OutsideRule(rule.surprisal, math.nan, 1.0).save(path)
    with pytest.raises(ModelFolderError, match="prior nan"):
        OutsideRule.load(path, WORDS)
