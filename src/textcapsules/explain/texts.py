"""Explain texts: which phrases spoke for each label, and how strongly."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import overload

import numpy as np
from numpy.typing import NDArray

from textcapsules.classifier import TextClassifier
from textcapsules.errors import ConfigError
from textcapsules.explain.phrases import Picked, cut_phrases, pick_phrases
from textcapsules.explain.strengths import Strengths, check_method, find_strengths
from textcapsules.explain.types import (
    ORPHAN,
    Explanation,
    LabelExplanation,
    TokenSpan,
)
from textcapsules.model.capsnet import CapsuleNetwork
from textcapsules.text.batch import epoch_batches, make_batch
from textcapsules.text.tokenize import build_rule, split_text

__all__ = ["DEFAULT_METHOD", "capsule_network", "explain"]

DEFAULT_METHOD = "couplings"  # measured to be as faithful as any, and the cheapest
BATCH_SIZE = 32  # the couplings of more leave a CPU's caches


@overload
def explain(
    classifier: TextClassifier,
    texts: str,
    *,
    method: str = DEFAULT_METHOD,
    top: int = 10,
    true: Sequence[str] | None = None,
) -> Explanation: ...
@overload
def explain(
    classifier: TextClassifier,
    texts: list[str] | tuple[str, ...],
    *,
    method: str = DEFAULT_METHOD,
    top: int = 10,
    true: Sequence[Sequence[str]] | None = None,
) -> list[Explanation]: ...
def explain(
    classifier: TextClassifier,
    texts: str | list[str] | tuple[str, ...],
    *,
    method: str = DEFAULT_METHOD,
    top: int = 10,
    true: Sequence[str] | Sequence[Sequence[str]] | None = None,
) -> Explanation | list[Explanation]:
    """Explain one text, or several.

    Args:
        classifier: a capsule network.
        texts: one text, or a list of them.
        method: what a strength is: `contributions`, `couplings`, `gradient`,
            `integrated` or `erasure`.
        top: phrases listed a label, at most.
        true: the text's own labels, or each text's, to be shown beside the predicted.
    """
    if isinstance(texts, str):
        own = None if true is None else [tuple(map(str, true))]
        return explain(classifier, [texts], method=method, top=top, true=own)[0]
    check_request(texts, method, top, true)
    network = capsule_network(classifier)
    was_training = network.training
    network.eval()
    tokens, documents = read_texts(classifier, texts)
    explanations: dict[int, Explanation] = {}
    sizes = [len(ids) for ids in documents]
    for places in epoch_batches(sizes, BATCH_SIZE, seed=0, epoch=0, shuffle=False):
        rows: list[int] = places.tolist()
        batch = explain_batch(
            classifier,
            [texts[row] for row in rows],
            [tokens[row] for row in rows],
            [documents[row] for row in rows],
            method,
            top,
        )
        explanations.update(zip(rows, batch, strict=True))
    network.train(was_training)
    ordered = [explanations[row] for row in range(len(texts))]
    if true is None:
        return ordered
    return [
        replace(explanation, true=tuple(own))
        for explanation, own in zip(ordered, true, strict=True)
    ]


def capsule_network(classifier: TextClassifier) -> CapsuleNetwork:
    """Return the network, and say so if it has no capsules to be explained by."""
    if not isinstance(classifier.network, CapsuleNetwork):
        raise ConfigError(
            "classifier must be a capsule network to be explained; got "
            f"{type(classifier.network).__name__}. Explain another model."
        )
    return classifier.network


def check_request(
    texts: Sequence[str], method: str, top: int, true: Sequence | None
) -> None:
    """Refuse what cannot be explained so."""
    check_method(method)
    if top < 1:
        raise ConfigError(f"top must be at least 1; got {top}.")
    if true is not None and len(true) != len(texts):
        raise ConfigError(
            f"true must hold the labels of each of {len(texts)} texts; got {len(true)}."
        )


def read_texts(
    classifier: TextClassifier, texts: Sequence[str]
) -> tuple[list[tuple[TokenSpan, ...]], list[NDArray]]:
    """Return the tokens the model reads of every text, and their word numbers."""
    documents = classifier.encode(texts)
    rule = build_rule(classifier.tokenizer.rule)
    tokens = [
        tuple(split_text(text, rule)[: len(ids)])
        for text, ids in zip(texts, documents, strict=True)
    ]
    return tokens, documents


def explain_batch(
    classifier: TextClassifier,
    texts: Sequence[str],
    tokens: Sequence[tuple[TokenSpan, ...]],
    documents: Sequence[NDArray],
    method: str,
    top: int,
) -> Iterator[Explanation]:
    """Explain some texts together, read already."""
    network = capsule_network(classifier)
    nothing = np.zeros((len(texts), 0), dtype=np.float32)  # no targets to carry
    batch = make_batch(documents, nothing, range(len(texts)))
    batch = batch.to(next(network.parameters()).device)
    found = find_strengths(network, batch.ids, batch.mask, method)
    n_tokens = np.array([len(ids) for ids in documents])  # (B,)
    found.lengths[n_tokens == 0] = 0  # where padding votes
    views = pick_views(found, n_tokens, top)
    scores = found.lengths[:, : network.n_classes]
    chosen = classifier.decide(scores)
    for row, text in enumerate(texts):
        labels = explain_labels(
            classifier, found, views, chosen[row], (text, tokens[row]), row
        )
        yield Explanation(
            text=text,
            tokens=tokens[row],
            labels=tuple(labels[: network.n_classes]),
            orphan=labels[-1] if len(labels) > network.n_classes else None,
            leak=float(found.leak[row]),
            orphan_share=float(found.orphan_share[row]),
            predicted=classifier.names(scores[row], chosen[row]),
            true=None,
            method=method,
        )


def pick_views(
    found: Strengths, n_tokens: NDArray, top: int
) -> tuple[Picked, dict[int, Picked]]:
    """Pick the phrases of all sizes together, and of each by itself."""
    together = pick_phrases(found.ngrams, n_tokens, top)
    if len(found.ngrams) == 1:
        return together, {found.ngrams[0].size: together}
    return together, {
        ngrams.size: pick_phrases([ngrams], n_tokens, top) for ngrams in found.ngrams
    }


def explain_labels(
    classifier: TextClassifier,
    found: Strengths,
    views: tuple[Picked, dict[int, Picked]],
    chosen: NDArray,
    read: tuple[str, tuple[TokenSpan, ...]],
    row: int,
) -> list[LabelExplanation]:
    """Explain every class of one text of a batch, the orphan last."""
    text, tokens = read
    together, sizes = views
    phrases = cut_phrases(text, tokens, together, row)  # one tuple a class
    by_size = {
        size: phrases if picked is together else cut_phrases(text, tokens, picked, row)
        for size, picked in sizes.items()
    }
    strengths = found.tokens[row, : len(tokens)].T.tolist()  # E lists of T
    names = (*classifier.labels.names, ORPHAN)
    decided = [*chosen.tolist(), False]
    return [
        LabelExplanation(
            label=names[place],
            score=score,
            predicted=decided[place],
            phrases=phrases[place],
            tokens=tuple(strengths[place]),
            by_size={size: own[place] for size, own in by_size.items()},
        )
        for place, score in enumerate(found.lengths[row].tolist())
    ]
