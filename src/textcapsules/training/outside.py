"""Learn from a corpus which texts lie outside its topics (`text.outside`)."""

from collections.abc import Sequence

from numpy.typing import NDArray

from textcapsules.config import RunConfig
from textcapsules.data.example import Corpus, Example
from textcapsules.text.encode import Encoder
from textcapsules.text.outside import OutsideRule, fit_outside
from textcapsules.text.pieces import PieceTokenizer
from textcapsules.text.vocabulary import TextTokenizer

__all__ = ["outside_rule"]


def outside_rule(
    config: RunConfig, tokenizer: TextTokenizer | PieceTokenizer, corpus: Corpus
) -> OutsideRule | None:
    """Return the rule of a model; None if there are too few dev texts for a limit.

    A text without a label may lie outside itself, so nothing is learnt from it. Joined
    dev texts are not needed: a mean over more words strays less than that of a single
    text, so they stay below its limit.
    """
    encoder = Encoder(config, tokenizer)

    def read(examples: Sequence[Example]) -> list[NDArray]:
        return list(encoder.cut_ids([each.text for each in examples if each.labels])[0])

    return fit_outside(read(corpus.train), read(corpus.dev), tokenizer)
