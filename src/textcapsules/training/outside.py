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

__all__ = ["outside_rule", "repeats_itself"]

# Of a few hundred texts that people wrote, 1 to 29 % of a further text's words are new.
FEW_NEW_WORDS = 0.005
FEW_TEXTS = 3000  # of more training texts, all words may well be known


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


def repeats_itself(rule: OutsideRule, corpus: Corpus) -> str | None:
    """Return a warning if a rule knows the wording of its training texts alone."""
    new = rule.figures["new_words"]
    if new >= FEW_NEW_WORDS or len(corpus.train) > FEW_TEXTS:
        return None
    return (
        f"the {rule.figures['texts']:,} dev texts have hardly a word that the training "
        f"texts lack ({100 * new:.1f}%), as texts made of templates do: texts in other "
        "words may be taken for off-topic and get no label. Look at what `predict` "
        "gives as outside, add other wordings, or train with --no-refuse."
    )
