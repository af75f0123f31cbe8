from typing import Any

import numpy as np
import pytest
import torch

from textcapsules.config import preset
from textcapsules.training import encoder_choice
from textcapsules.training.encoder_choice import (
    MOST_PIECES,
    VARIABLE,
    choose_encoder,
    pieces_per_word,
    settle_encoder,
)

CPU = torch.device("cpu")
ENGLISH = ["The app crashes as soon as I open it.", "You charged my card twice."]


class Syllables:
    """Knows words of four letters, and cuts others into pieces of two."""

    def encode(self, words, max_tokens):
        return [np.zeros(1 if len(w) == 4 else -(-len(w) // 2)) for w in words]


SYLLABLES: Any = Syllables()


class Loaded:
    tokenizer = SYLLABLES


@pytest.fixture
def installed(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(encoder_choice, "installed_encoder", lambda: "it")
    monkeypatch.setattr(encoder_choice, "load_encoder", lambda _: Loaded)


def test_pieces_are_counted_per_word_of_letters():
    assert pieces_per_word(SYLLABLES, ["four, 4444! letter"]) == (1 + 3) / 2
    assert pieces_per_word(SYLLABLES, ["1987", ""]) is None
    assert pieces_per_word(SYLLABLES, []) is None


def test_a_sorted_file_is_sampled_in_all_its_parts():
    texts = ["four"] * 5000 + ["letter"] * 5000
    assert pieces_per_word(SYLLABLES, texts) == 2


def test_an_installed_encoder_is_taken_for_its_language(installed):
    assert choose_encoder(["four even more"] * 9, CPU).encoder == "it"
    choice = choose_encoder(["letter letters"], CPU)
    assert choice.encoder is None
    assert "the texts are not in the language of it" in choice.reason
    assert (pieces_per_word(SYLLABLES, ["letter letters"]) or 0) > MOST_PIECES
    assert choose_encoder(["1987"], CPU) == (None, "the texts have no words of letters")


def test_many_words_are_for_a_gpu(installed, monkeypatch):
    monkeypatch.setattr(encoder_choice, "MOST_WORDS", 5)
    texts = ["four even more"] * 2
    assert "6 words would take it long" in choose_encoder(texts, CPU).reason
    assert choose_encoder(texts, torch.device("cuda")).encoder == "it"


def test_without_an_encoder_words_are_read(installed, monkeypatch):
    monkeypatch.setattr(encoder_choice, "installed_encoder", lambda: None)
    choice = choose_encoder(ENGLISH, CPU)
    assert choice == (None, "no pretrained encoder is installed")


@pytest.mark.parametrize(
    ("value", "expected"), [("none", None), ("folder/x", "folder/x")]
)
def test_a_variable_decides_first(installed, monkeypatch, value, expected):
    monkeypatch.setenv(VARIABLE, value)
    assert choose_encoder(["letter letters"], CPU).encoder == expected


def test_only_an_open_choice_is_settled(installed):
    run = preset("best").replace(train={"epochs": 3})
    assert settle_encoder(run, ENGLISH, CPU) == (run, None)
    is_open = run.replace(text={"encoder": "auto"})
    settled, choice = settle_encoder(is_open, ["four even more"], CPU)
    assert choice is not None
    assert (settled.preset, settled.text.encoder) == ("encoder-frozen", "it")
    assert settled.train.epochs == 3
    assert settled.model == preset("encoder-frozen").model
    other = preset("encoder-frozen").replace(model={"filters": 100})
    settled, _ = settle_encoder(is_open, ["four even more"], CPU, other)
    assert settled == other.replace(text={"encoder": "it"})
    settled, choice = settle_encoder(is_open, ["letters"], CPU)
    assert choice is not None
    assert settled == run


@pytest.mark.slow
def test_the_installed_encoder_knows_english():
    from textcapsules.text.encoder import load_encoder
    from textcapsules.text.encoder_files import installed_encoder

    name = installed_encoder()
    if name is None:
        pytest.skip("no encoder is installed")
    tokenizer = load_encoder(name).tokenizer
    assert (pieces_per_word(tokenizer, ENGLISH) or 9) < MOST_PIECES
    german = ["Ich habe mein Passwort vergessen und kann mich nicht mehr anmelden."]
    french = ["Le colis est arrivé endommagé et je voudrais être remboursé."]
    for texts in (german, french):
        assert (pieces_per_word(tokenizer, texts) or 0) > MOST_PIECES
