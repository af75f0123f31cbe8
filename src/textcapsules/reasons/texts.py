"""Where the fields of a batch's explanations come from, when they are asked for.

Explain texts: which phrases spoke for each label, and how strongly.
"""

from collections.abc import Iterator, Sequence
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
from textcapsules.reasons.methods import device_of, evaluating, explainable_network
from textcapsules.reasons.phrases import Picked, cut_phrases, pick_phrases
from textcapsules.reasons.strengths import Strengths, find_strengths, settle_method
from textcapsules.text.batch import epoch_batches, make_batch
from textcapsules.text.encode import WordCounts, count_words, drop_unreadable
from textcapsules.text.vocabulary import UNK_ID, Located, TextTokenizer

__all__ = ["BatchSource", "TextSource", "explain", "locate_texts"]


@dataclass(frozen=True)
class BatchSource:
    """What was found for some texts together: B texts, J classes."""

    tokenizer: TextTokenizer
    names: tuple[str, ...]  # of the J classes
    found: Strengths
    chosen: NDArray[np.bool_]  # (B, J)
    n_tokens: NDArray[np.int64]  # (B,)
    top: int

    @cached_property
    def together(self) -> Picked:
        """The phrases of all n-gram sizes together."""
        return pick_phrases(self.found.ngrams, self.n_tokens, self.top)

    @cached_property
    def by_size(self) -> dict[int, Picked]:
        """The phrases of each n-gram size by itself."""
        if len(self.found.ngrams) == 1:
            return {self.found.ngrams[0].size: self.together}
        return {
            ngrams.size: pick_phrases([ngrams], self.n_tokens, self.top)
            for ngrams in self.found.ngrams
        }


class TextSource(NamedTuple):
    """One text of a batch; its methods are the later fields of an `Explanation`."""

    batch: BatchSource
    row: int
    text: str
    located: Located

    def tokens(self) -> tuple[TokenSpan, ...]:
        """Return the tokens that the model read."""
        return tuple(self.batch.tokenizer.pieces(self.text, self.located))

    def labels(self) -> tuple[LabelExplanation, ...]:
        """Return every class's explanation, themselves for later."""
        scores = self.batch.found.lengths[self.row].tolist()
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
        scores, place = self.batch.found.lengths[self.row], len(self.batch.names)
        if len(scores) == place:
            return None
        return LabelExplanation.later(
            LabelSource(self, place),
            label=ORPHAN,
            score=float(scores[place]),
            predicted=False,
        )


class LabelSource(NamedTuple):
    """One class of a text; its methods are later fields of a `LabelExplanation`."""

    text: TextSource
    place: int  # among the classes, the orphan last

    def phrases(self) -> tuple[Phrase, ...]:
        """Return the phrases of all n-gram sizes together."""
        return self.cut(self.text.batch.together)

    def by_size(self) -> dict[int, tuple[Phrase, ...]]:
        """Return the phrases of each n-gram size by itself."""
        picked = self.text.batch.by_size
        return {size: self.cut(own) for size, own in picked.items()}

    def cut(self, picked: Picked) -> tuple[Phrase, ...]:
        """Cut picked phrases of this text and class out of it."""
        _, row, text, located = self.text
        return cut_phrases(text, located.places, picked, row, self.place)

    def tokens(self) -> tuple[float, ...]:
        """Return one strength a token."""
        batch, row, _, located = self.text
        n_tokens = len(located.places)
        return tuple(batch.found.tokens[row, :n_tokens, self.place].tolist())


BATCH_SIZE = 32  # the couplings of more leave a CPU's caches


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

    The network runs once. Phrases and strengths are made from what it leaves when they
    are first read.

    Args:
        classifier: a capsule network, a CNN, an LSTM, TF-IDF or fastText.
        texts: one text, or a list of them.
        method: what a strength is: `contributions`, `couplings`, `gradient`,
            `integrated` or `erasure`; the first two for capsules alone, the next two
            for networks. If None, `couplings` for capsules, `gradient` for a CNN,
            `integrated` for an LSTM, `erasure` for the rest.
        top: phrases listed a label, at most.
        true: the text's own labels, or each text's, to be shown beside the predicted.
        multi_label: which labels count as predicted; see `TextClassifier.decide`.
        threshold: one for all labels, in place of the calibrated ones.
    """
    decision: dict[str, Any] = {"multi_label": multi_label, "threshold": threshold}
    if isinstance(texts, str):
        own = None if true is None else [tuple(map(str, true))]
        return explain(
            classifier, [texts], method=method, top=top, true=own, **decision
        )[0]
    check_decision(multi_label, threshold)
    texts = read_texts(texts)
    network = explainable_network(classifier)
    method = settle_method(network, method)
    check_request(texts, top, true)
    located, counts = locate_counted(classifier, texts)
    labels = [None] * len(texts) if true is None else [tuple(own) for own in true]
    explanations: dict[int, Explanation] = {}
    sizes = [len(own.ids) for own in located]
    with evaluating(network):
        for places in epoch_batches(sizes, BATCH_SIZE, seed=0, epoch=0, shuffle=False):
            rows: list[int] = places.tolist()
            batch = explain_batch(
                classifier,
                [texts[row] for row in rows],
                [located[row] for row in rows],
                [labels[row] for row in rows],
                [(int(counts.known[row]), int(counts.words[row])) for row in rows],
                method,
                top,
                decision,
            )
            explanations.update(zip(rows, batch, strict=True))
    return [explanations[row] for row in range(len(texts))]


def check_request(texts: Sequence[str], top: int, true: Sequence | None) -> None:
    """Refuse what cannot be explained so."""
    if not isinstance(top, int) or top < 1:
        raise ConfigError(f"top must be at least 1; got {top!r}.")
    if true is not None and len(true) != len(texts):
        raise ConfigError(
            f"true must hold the labels of each of {len(texts)} texts; got {len(true)}."
        )


def locate_texts(classifier: TextClassifier, texts: Sequence[str]) -> list[Located]:
    """Return the tokens the model reads of every text: none of an unreadable one."""
    return locate_counted(classifier, texts)[0]


def locate_counted(
    classifier: TextClassifier, texts: Sequence[str]
) -> tuple[list[Located], WordCounts]:
    """Return what `locate_texts` does, and how many words of each text are known."""
    tokenizer = classifier.tokenizer
    located = tokenizer.locate(texts, classifier.config.text.max_tokens)
    ids = [own.ids for own in located]
    documents = drop_unreadable(ids, tokenizer.first_word)
    kept = [
        Located(document, own.places[: len(document)])
        for document, own in zip(documents, located, strict=True)
    ]
    if classifier.config.text.unknown == "drop":
        kept = [known_words(own) for own in kept]
    return kept, count_words(ids, tokenizer.first_word)


def known_words(located: Located) -> Located:
    """Return the tokens without those of unknown words."""
    is_known = located.ids != UNK_ID
    places = [
        place for place, known in zip(located.places, is_known, strict=True) if known
    ]
    return Located(located.ids[is_known], places)


def explain_batch(
    classifier: TextClassifier,
    texts: Sequence[str],
    located: Sequence[Located],
    true: Sequence[tuple[str, ...] | None],
    counts: Sequence[tuple[int, int]],
    method: str,
    top: int,
    decision: dict[str, Any],
) -> Iterator[Explanation]:
    """Explain some texts together, read already."""
    network = explainable_network(classifier)
    documents = [own.ids for own in located]
    nothing = np.zeros((len(texts), 0), dtype=np.float32)  # no targets to carry
    batch = make_batch(documents, nothing, range(len(texts)))
    batch = batch.to(device_of(network))
    found = find_strengths(network, batch.ids, batch.mask, method)
    n_tokens = np.array([len(ids) for ids in documents])  # (B,)
    found.lengths[n_tokens == 0] = 0  # where padding votes
    names, tokenizer = classifier.labels.names, classifier.tokenizer
    scores = found.lengths[:, : len(names)]
    chosen = classifier.decide(scores, **decision)
    source = BatchSource(tokenizer, names, found, chosen, n_tokens, top)
    for row in range(len(texts)):
        yield Explanation.later(
            TextSource(source, row, texts[row], located[row]),
            text=texts[row],
            leak=value_at(found.leak, row),
            orphan_share=value_at(found.orphan_share, row),
            predicted=classifier.names(scores[row], chosen[row]),
            true=true[row],
            method=method,
            known=counts[row][0],
            words=counts[row][1],
        )


def value_at(values: NDArray[np.float32] | None, row: int) -> float | None:
    """Return a text's value of a batch's, where there are any."""
    return None if values is None else float(values[row])
