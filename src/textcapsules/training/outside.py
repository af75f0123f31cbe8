"""Learn from a corpus which texts lie outside its topics (`text.outside`)."""

from collections.abc import Sequence

from numpy.typing import NDArray

from textcapsules.config import RunConfig
from textcapsules.data.example import Corpus
from textcapsules.data.off_topic import general_texts
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

    def read(texts: Sequence[str]) -> list[NDArray]:
        return list(encoder.cut_ids(texts)[0])

    train, dev = (
        [each for each in examples if each.labels]
        for examples in (corpus.train, corpus.dev)
    )
    return fit_outside(
        read([each.text for each in train]),
        read([each.text for each in dev]),
        tokenizer,
        general=read(general_texts()),
        dev_labels=[each.labels for each in dev],
    )
