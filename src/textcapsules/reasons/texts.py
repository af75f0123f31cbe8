"""Explain texts: which phrases spoke for each label, and how strongly.

`explain` runs the network once per batch. The fields of an explanation are computed
from the strengths of its batch when they are first read: `BatchSource`, `TextSource`
and `LabelSource` hold what is needed for that.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from textcapsules.base.checks import check_decision, read_texts
from textcapsules.base.errors import ConfigError
from textcapsules.model.classifier import TextClassifier
from textcapsules.reasons.explanation import (
    ORPHAN,
    Explanation,
    LabelExplanation,
    Phrase,
    TokenSpan,
)
from textcapsules.reasons.methods import (
    batch_for,
    evaluating,
    explainable_network,
    settle_method,
)
from textcapsules.reasons.phrases import PickedPhrases, cut_phrases, pick_phrases
from textcapsules.reasons.strengths import Strengths, find_strengths
from textcapsules.text.batch import epoch_batches
from textcapsules.text.encode import (
    WordCounts,
    count_words,
    drop_unreadable,
    spelling_options,
)
from textcapsules.text.pieces import PieceTokenizer
from textcapsules.text.vocabulary import UNK_ID, Located, TextTokenizer

__all__ = ["BatchSource", "TextSource", "explain", "locate_texts"]

BATCH_SIZE = 32  # the couplings of more leave a CPU's caches


@dataclass(frozen=True)
class BatchSource:
    """Strengths and decisions for some texts together: B texts, J classes."""

    tokenizer: TextTokenizer | PieceTokenizer
    names: tuple[str, ...]  # of the J classes
    strengths: Strengths
    chosen: NDArray[np.bool_]  # (B, J)
    n_tokens: NDArray[np.int64]  # (B,)
    top: int

    @cached_property
    def phrases(self) -> PickedPhrases:
        """The phrases of all n-gram sizes together."""
        return pick_phrases(self.strengths.ngrams, self.n_tokens, self.top)

    @cached_property
    def by_size(self) -> dict[int, PickedPhrases]:
        """The phrases of each n-gram size by itself."""
        if len(self.strengths.ngrams) == 1:
            return {self.strengths.ngrams[0].size: self.phrases}
        return {
            ngrams.size: pick_phrases([ngrams], self.n_tokens, self.top)
            for ngrams in self.strengths.ngrams
        }


class TextSource(NamedTuple):
    """One text of a batch; its methods compute fields of an `Explanation`."""

    batch: BatchSource
    row: int
    text: str
    located: Located

    def tokens(self) -> tuple[TokenSpan, ...]:
        """Return the tokens that the model read."""
        return tuple(self.batch.tokenizer.pieces(self.text, self.located))

    def labels(self) -> tuple[LabelExplanation, ...]:
        """Return every class's explanation, its phrases and strengths for later."""
        scores = self.batch.strengths.lengths[self.row].tolist()
        chosen = self.batch.chosen[self.row].tolist()
        return tuple(
            LabelExplanation.later(
                LabelSource(self, place),
                label=name,
                score=scores[place],
                predicted=chosen[place],
            )
            for place, name in enumerate(self.batch.names)
        )

    def orphan(self) -> LabelExplanation | None:
        """Return the orphan's explanation, if the model has one."""
        scores, place = self.batch.strengths.lengths[self.row], len(self.batch.names)
        if len(scores) == place:
            return None
        return LabelExplanation.later(
            LabelSource(self, place),
            label=ORPHAN,
            score=float(scores[place]),
            predicted=False,
        )


class LabelSource(NamedTuple):
    """One class of a text; its methods compute fields of a `LabelExplanation`."""

    text: TextSource
    place: int  # among the classes, the orphan last

    def phrases(self) -> tuple[Phrase, ...]:
        """Return the phrases of all n-gram sizes together."""
        return self.cut(self.text.batch.phrases)

    def by_size(self) -> dict[int, tuple[Phrase, ...]]:
        """Return the phrases of each n-gram size by itself."""
        by_size = self.text.batch.by_size
        return {size: self.cut(picked) for size, picked in by_size.items()}

    def cut(self, picked: PickedPhrases) -> tuple[Phrase, ...]:
        """Cut the phrases picked for this class out of this text."""
        _, row, text, located = self.text
        in_pieces = self.text.batch.tokenizer.rule == "pieces"
        return cut_phrases(
            text, located.places, picked, row, self.place, whole_words=in_pieces
        )

    def tokens(self) -> tuple[float, ...]:
        """Return one strength per token."""
        batch, row, _, located = self.text
        n_tokens = len(located.places)
        return tuple(batch.strengths.tokens[row, :n_tokens, self.place].tolist())


@overload
def explain(
    classifier: TextClassifier,
    texts: str,
    *,
    method: str | None = None,
    top: int = 10,
    true: Sequence[str] | None = None,
    multi_label: bool | None = None,
    threshold: float | None = None,
) -> Explanation: ...
@overload
def explain(
    classifier: TextClassifier,
    texts: list[str] | tuple[str, ...],
    *,
    method: str | None = None,
    top: int = 10,
    true: Sequence[Sequence[str]] | None = None,
    multi_label: bool | None = None,
    threshold: float | None = None,
) -> list[Explanation]: ...
def explain(
    classifier: TextClassifier,
    texts: str | list[str] | tuple[str, ...],
    *,
    method: str | None = None,
    top: int = 10,
    true: Sequence[str] | Sequence[Sequence[str]] | None = None,
    multi_label: bool | None = None,
    threshold: float | None = None,
) -> Explanation | list[Explanation]:
    """Explain one text, or several.

    The network runs once. Phrases and strengths are computed when they are first read.

    Args:
        classifier: a capsule network, a CNN, an LSTM, TF-IDF or fastText.
        texts: one text, or a list of them.
        method: what a strength is: `contributions`, `couplings`, `gradient`,
            `integrated` or `erasure`; the first two for capsules only, the next two
            for networks. If None, `couplings` for capsules, `gradient` for a CNN,
            `integrated` for an LSTM, `erasure` for the rest.
        top: the largest number of phrases per label.
        true: the labels that the text, or each text, should get; they are shown beside
            the predicted ones.
        multi_label: which labels count as predicted; see `TextClassifier.decide`.
        threshold: one for all labels, in place of the calibrated ones.
    """
    decision: dict[str, Any] = {"multi_label": multi_label, "threshold": threshold}
    if isinstance(texts, str):
        labels = None if true is None else [label_names(true)]
        return explain(
            classifier, [texts], method=method, top=top, true=labels, **decision
        )[0]
    check_decision(multi_label, threshold)
    texts = read_texts(texts)
    network = explainable_network(classifier)
    method = settle_method(network, method)
    check_request(texts, top, true)
    located, counts = locate_counted(classifier, texts)
    documents = [each.ids for each in located]
    sizes = np.array([len(ids) for ids in documents])
    names, tokenizer = classifier.labels.names, classifier.tokenizer
    explanations: dict[int, Explanation] = {}
    with evaluating(network):
        for rows in epoch_batches(sizes, BATCH_SIZE, seed=0, epoch=0, shuffle=False):
            batch = batch_for(network, documents, rows)
            strengths = find_strengths(network, batch.ids, batch.mask, method)
            strengths.lengths[sizes[rows] == 0] = 0  # where padding votes
            scores = strengths.lengths[:, : len(names)]
            chosen = classifier.decide(scores, **decision)
            source = BatchSource(tokenizer, names, strengths, chosen, sizes[rows], top)
            for place, row in enumerate(rows.tolist()):
                explanations[row] = Explanation.later(
                    TextSource(source, place, texts[row], located[row]),
                    text=texts[row],
                    leak=value_at(strengths.leak, place),
                    orphan_share=value_at(strengths.orphan_share, place),
                    predicted=classifier.names(scores[place], chosen[place]),
                    true=None if true is None else label_names(true[row]),
                    method=method,
                    known=int(counts.known[row]),
                    words=int(counts.words[row]),
                )
    return [explanations[row] for row in range(len(texts))]


def label_names(labels: Any) -> tuple[str, ...]:
    """Return the labels of a text; one that stands alone is one label.

    >>> label_names("crash"), label_names(["crash", "sync"])
    (('crash',), ('crash', 'sync'))
    """
    return (labels,) if isinstance(labels, str) else tuple(map(str, labels))


def check_request(texts: Sequence[str], top: int, true: Sequence | None) -> None:
    """Refuse a number of phrases below 1, and labels that do not match the texts."""
    if not isinstance(top, int) or top < 1:
        raise ConfigError(f"top must be at least 1; got {top!r}.")
    if true is not None and len(true) != len(texts):
        raise ConfigError(
            f"true must hold the labels of each of {len(texts)} texts; got {len(true)}."
        )


def locate_texts(classifier: TextClassifier, texts: Sequence[str]) -> list[Located]:
    """Return the tokens the model reads of every text; an unreadable text has none."""
    return locate_counted(classifier, texts)[0]


def locate_counted(
    classifier: TextClassifier, texts: Sequence[str]
) -> tuple[list[Located], WordCounts]:
    """Return the same as `locate_texts`, and how many words of each text are known."""
    tokenizer = classifier.tokenizer
    options = spelling_options(classifier.config, tokenizer)
    located = tokenizer.locate(texts, classifier.config.text.max_tokens, **options)
    ids = [each.ids for each in located]
    documents = drop_unreadable(ids, tokenizer.first_word)
    kept = [
        Located(document, each.places[: len(document)])
        for document, each in zip(documents, located, strict=True)
    ]
    if classifier.config.text.unknown != "keep":
        kept = [known_words(each) for each in kept]
    return kept, count_words(ids, tokenizer.first_word)


def known_words(located: Located) -> Located:
    """Return the tokens without those of unknown words."""
    is_known = located.ids != UNK_ID
    places = [
        place for place, known in zip(located.places, is_known, strict=True) if known
    ]
    return Located(located.ids[is_known], places)


def value_at(values: NDArray[np.float32] | None, row: int) -> float | None:
    """Return the value of one text, if the batch has such values."""
    return None if values is None else float(values[row])
