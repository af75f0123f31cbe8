"""Which pretrained encoder a run takes that leaves the choice open.

An encoder gives better labels than words alone (docs/encoders.md), but only in a
language that it knows, and reading many texts takes its time. So a run whose encoder is
`auto` takes the installed one if the texts are in its language and the machine can read
them in minutes; otherwise it is on words. On an encoder the run has the preset of
encoders, with every option that its user has set.
"""

import os
import re
from collections.abc import Sequence
from typing import NamedTuple

import torch

from textcapsules.config import AUTO, ENCODER_PRESET, RunConfig, rebase
from textcapsules.text.encoder import load_encoder
from textcapsules.text.encoder_files import installed_encoder
from textcapsules.text.pieces import PieceTokenizer

__all__ = ["VARIABLE", "EncoderChoice", "choose_encoder", "settle_encoder"]

VARIABLE = "TEXTCAPSULES_ENCODER"  # the encoder to take, or `none`
NONE = "none"
# Word pieces per word of letters: 1.04 to 1.17 in eight English corpora, 1.6 and more
# in French, Spanish, Dutch and German, for the vocabulary of all-MiniLM-L6-v2.
MOST_PIECES = 1.4
SAMPLE_TEXTS, SAMPLE_WORDS = 500, 20_000
MOST_WORDS = 1_000_000  # that a CPU reads in minutes
WORD = re.compile(r"[^\W\d_]{2,}")


class EncoderChoice(NamedTuple):
    """The encoder to take, if any, and why."""

    encoder: str | None
    reason: str


def settle_encoder(
    config: RunConfig,
    texts: Sequence[str],
    device: torch.device,
    on_encoder: RunConfig | None = None,
) -> tuple[RunConfig, EncoderChoice | None]:
    """Return a run that says which encoder it takes; None if it said so already.

    Args:
        config: the run.
        texts: of the training set.
        device: that reads them.
        on_encoder: the run to take with an encoder; by default what `config` changes in
            its preset, on the preset of encoders.
    """
    if config.text.encoder != AUTO:
        return config, None
    choice = choose_encoder(texts, device)
    if choice.encoder is not None:
        config = on_encoder or rebase(config, ENCODER_PRESET)
    return config.replace(text={"encoder": choice.encoder}), choice


def choose_encoder(texts: Sequence[str], device: torch.device) -> EncoderChoice:
    """Return the encoder that suits these texts on this device."""
    named = os.environ.get(VARIABLE)
    if named:
        chosen = None if named.lower() == NONE else named
        return EncoderChoice(chosen, f"the variable {VARIABLE} says so")
    name = installed_encoder()
    if name is None:
        return EncoderChoice(None, "no pretrained encoder is installed")
    n_pieces = pieces_per_word(load_encoder(name).tokenizer, texts)
    if n_pieces is None:
        return EncoderChoice(None, "the texts have no words of letters")
    if n_pieces > MOST_PIECES:
        return EncoderChoice(
            None,
            f"the texts are not in the language of {name}, which cuts a word into "
            f"{n_pieces:.1f} pieces",
        )
    n_words = sum(len(text.split()) for text in texts)
    if n_words > MOST_WORDS and device.type != "cuda":
        return EncoderChoice(
            None, f"{n_words:,} words would take {name} long without a GPU"
        )
    return EncoderChoice(name, "it is installed and knows the language of the texts")


def pieces_per_word(tokenizer: PieceTokenizer, texts: Sequence[str]) -> float | None:
    """Return how many pieces a word of letters has; None if there is no such word."""
    step = max(len(texts) // SAMPLE_TEXTS, 1)  # some of all parts of a sorted file
    words = [word for text in texts[::step] for word in WORD.findall(text)]
    words = words[:: max(len(words) // SAMPLE_WORDS, 1)]
    pieces = tokenizer.encode(words, max_tokens=100)
    return sum(map(len, pieces)) / len(words) if words else None
