"""Word classes from VADER's lists."""

import importlib
import subprocess
import sys

import numpy as np
import pytest

from textcapsules.base.errors import TextCapsulesError
from textcapsules.text import lexicon
from textcapsules.text.lexicon import read_lists, word_classes

# Known from VADER's published lists.
KNOWN = {
    "": 0,
    "film": 0,
    "<script>": 0,
    "😀": 0,
    "good": 1,
    "GOOD": 1,
    "excellent": 1,
    ":)": 1,
    "terrible": 2,
    "hate": 2,
    "not": 3,
    "never": 3,
    "n't": 3,
    "couldn't": 3,
    "without": 3,
    "very": 4,
    "barely": 4,
    "incredible": 4,
    "kind": 1,  # "kind of" is a phrase, no word
}


def test_known_words_have_their_classes() -> None:
    numbers = word_classes(list(KNOWN))
    assert numbers.dtype == np.int8
    assert dict(zip(KNOWN, numbers.tolist(), strict=True)) == KNOWN


def test_lists_are_those_of_the_module() -> None:
    """The oracle is the module itself, imported where its imports can be had."""
    module = importlib.import_module("vaderSentiment.vaderSentiment")
    lists = lexicon.read_lexicon()
    assert lists.negators == set(module.NEGATE)
    assert lists.intensifiers == set(module.BOOSTER_DICT)
    analyser = module.SentimentIntensityAnalyzer()
    for word in ["abandon", "wonderful", "lol", "zealot"]:
        assert lists.valence[word] == analyser.lexicon[word]


def test_reading_the_lists_imports_nothing_of_vader() -> None:
    code = (
        "import sys; from textcapsules.text.lexicon import word_classes;"
        "word_classes(['good']); print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert "textcapsules.text.lexicon" in loaded
    assert not loaded & {"vaderSentiment", "vaderSentiment.vaderSentiment", "requests"}


def test_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lexicon, "find_spec", lambda name: None)
    with pytest.raises(TextCapsulesError, match="vaderSentiment must be installed"):
        word_classes(["good"])


def test_lists_are_read_from_any_source() -> None:
    source = "A = ['x', 1, B]\nB = 3\nC = {'p': B, **D}\nA.d = [1]\ndef f(): E = ['no']"
    assert read_lists(source) == {"A": ["x"], "C": ["p"]}
