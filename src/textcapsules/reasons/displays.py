"""The data behind the paper's displays, from a trained model and a corpus.

Tables 6, A.1 and A.2 show documents with the connection strengths of their n-grams,
table A.3 the words with the strongest connections to some categories and the orphan.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from textcapsules.base.errors import ConfigError
from textcapsules.data.example import Example
from textcapsules.model.classifier import TextClassifier
from textcapsules.reasons.corpus import explain_corpus
from textcapsules.reasons.networks import capsule_network
from textcapsules.reasons.strengths import find_strengths
from textcapsules.reasons.texts import locate_texts
from textcapsules.reasons.types import ORPHAN, LabelPhrases
from textcapsules.text.batch import make_batch

__all__ = ["CASES", "Connections", "choose_cases", "connections", "word_columns"]

# The documents the paper shows, all with several labels: what is true of each.
CASES = {
    "table6": "fully correct, every label above 0.8",
    "a1": "fully correct, every label between 0.4 and 0.6",
    "a2": "partly correct: some labels right, some wrong",
}


class Connections(NamedTuple):
    """Connection strengths of one text's n-grams of one size, in the text's order."""

    text: str
    phrases: tuple[str, ...]  # the n-grams, as they stand in the text
    strengths: dict[str, tuple[float, ...]]  # by category, one an n-gram; orphan last
    scores: dict[str, float]


def connections(
    classifier: TextClassifier,
    text: str,
    *,
    ngram_size: int | None = None,
    method: str = "couplings",
) -> Connections:
    """Return how strongly every n-gram of a text is tied to every category.

    Args:
        classifier: a capsule network.
        text: the document.
        ngram_size: which of the model's sizes; the first if None.
        method: as for `explain`; `couplings` is the paper's quantity.
    """
    network = capsule_network(classifier)
    ((ids, places),) = locate_texts(classifier, [text])
    batch = make_batch([ids], np.zeros((1, 0), np.float32), [0])
    batch = batch.to(next(network.parameters()).device)
    was_training = network.training
    found = find_strengths(network.eval(), batch.ids, batch.mask, method)
    network.train(was_training)
    by_size = {ngrams.size: ngrams for ngrams in found.ngrams}
    size = found.ngrams[0].size if ngram_size is None else ngram_size
    if size not in by_size:
        raise ConfigError(
            f"ngram_size must be one of the model's, {sorted(by_size)}; got {size!r}."
        )
    ngrams = by_size[size]
    values = ngrams.values[0]  # (P, E)
    starts = range(ngrams.first, len(places), ngrams.stride)[: len(values)]
    spans = [places[max(start, 0) : start + size] for start in starts if places]
    phrases = tuple(text[span[0][0] : span[-1][1]] for span in spans)
    columns = values[: len(phrases)].T.tolist()  # one list a category
    names = (*classifier.labels.names, ORPHAN)[: len(columns)]
    lengths = found.lengths[0].tolist() if places else [0.0] * len(columns)
    return Connections(
        text,
        phrases,
        dict(zip(names, map(tuple, columns), strict=True)),
        dict(zip(names, lengths, strict=True)),
    )


def choose_cases(
    classifier: TextClassifier, examples: Sequence[Example]
) -> dict[str, Example | None]:
    """Find the first document of each of `CASES`, None where there is none."""
    examples = [example for example in examples if len(example.labels) > 1]
    scores = classifier.scores([example.text for example in examples])
    found: dict[str, Example | None] = dict.fromkeys(CASES)
    decided = classifier.decide(scores)
    for example, row, chosen in zip(examples, scores, decided, strict=True):
        by_label = zip(classifier.labels.names, row.tolist(), strict=True)
        pairs = zip(by_label, chosen, strict=True)
        predicted = dict(pair for pair, is_predicted in pairs if is_predicted)
        case = kind_of_case(set(example.labels), predicted)
        if case is not None and found[case] is None:
            found[case] = example
    return found


def kind_of_case(true: set[str], predicted: dict[str, float]) -> str | None:
    """Return which of `CASES` a prediction is, if any."""
    if true == set(predicted):
        if min(predicted.values()) > 0.8:
            return "table6"
        if all(0.4 < score < 0.6 for score in predicted.values()):
            return "a1"
    elif true & set(predicted) and set(predicted) - true:
        return "a2"
    return None


def word_columns(
    classifier: TextClassifier,
    examples: Iterable[Example],
    labels: Sequence[str],
    *,
    top: int = 20,
    method: str = "couplings",
) -> tuple[LabelPhrases, ...]:
    """Return the columns of table A.3: the orphan, if there is one, then some labels.

    The paper's model for it has uni-grams (K1 = 1) and no convolutional capsules. A
    word's strengths are added up over the texts that got the label; the orphan's over
    all texts.
    """
    unknown = [label for label in labels if label not in classifier.labels.names]
    if unknown:
        names = ", ".join(classifier.labels.names)
        raise ConfigError(f"labels must be some of {names}; got {unknown[0]!r}.")
    found = explain_corpus(classifier, examples, method=method, top=top, mistakes=0)
    by_label = {column.label: column for column in found.labels}
    orphan = () if found.orphan is None else (found.orphan,)
    return (*orphan, *(by_label[label] for label in labels))
