"""A card about training texts: what a reader should know before trusting the figures.

It counts texts, words and labels, and looks for what commonly spoils a file: texts that
come twice, with other labels the second time; labels with hardly any text; pairs of
labels whose texts use the same words; and judged texts that are training texts too.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from textcapsules.data.example import Example
from textcapsules.text.function_words import is_function_word
from textcapsules.text.tokenize import tokenize

__all__ = ["DataCard", "Overlap", "Repeated", "data_card", "label_overlaps", "repeats"]

FEW_TEXTS = 10  # a label with fewer is hardly learnt
MAX_COMPARED = 20_000  # texts from which the words of labels are taken
SHARED_WORDS = 5  # shown per pair of labels
DENIALS = {"no", "not", "never", "cannot", "n't", "nor"}  # words of any topic


class Repeated(NamedTuple):
    """A text that comes more than once, and its labels, each set once."""

    text: str
    copies: int
    labels: tuple[tuple[str, ...], ...]


class Overlap(NamedTuple):
    """Two labels whose texts use the same words."""

    label: str
    other: str
    similarity: float  # cosine of the mean TF-IDF vectors, 0 to 1
    words: tuple[str, ...]  # that make them similar, strongest first


class DataCard(NamedTuple):
    """What is known about training texts."""

    texts: int
    words: tuple[int, int, int]  # of a text: median, ninth decile, longest
    labels: dict[str, int]  # texts per label, most frequent first
    rare: tuple[str, ...]  # labels with fewer than `FEW_TEXTS` texts
    repeats: tuple[Repeated, ...]  # most copies first
    overlaps: tuple[Overlap, ...]  # most similar first
    among_judged: int  # judged texts that are training texts too

    @property
    def copies(self) -> int:
        """Texts that repeat an earlier one."""
        return sum(each.copies - 1 for each in self.repeats)

    @property
    def contradictions(self) -> tuple[Repeated, ...]:
        """Repeated texts whose copies have different labels."""
        return tuple(each for each in self.repeats if len(each.labels) > 1)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON; texts are left out."""
        names = ("median", "ninth_decile", "longest")
        return {
            "texts": self.texts,
            "words": dict(zip(names, self.words, strict=True)),
            "labels": self.labels,
            "rare": list(self.rare),
            "copies": self.copies,
            "contradictions": len(self.contradictions),
            "overlaps": [each._asdict() for each in self.overlaps],
            "among_judged": self.among_judged,
        }


def data_card(
    examples: Sequence[Example],
    judged: Sequence[Example] = (),
    *,
    labels: Sequence[str] = (),
    rule: str = "words",
) -> DataCard:
    """Return the card of training texts.

    Args:
        examples: the training texts.
        judged: the texts that the model is judged on.
        labels: all that the model knows; some may have no text.
        rule: how texts are cut into words.
    """
    documents = [[piece.text for piece in tokenize(e.text, rule)] for e in examples]
    lengths = np.array([len(words) for words in documents] or [0])
    counts = Counter(dict.fromkeys(labels, 0))
    counts.update(label for example in examples for label in example.labels)
    ordered = dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
    known = {same_text(example.text) for example in examples}
    return DataCard(
        texts=len(examples),
        words=(
            int(np.median(lengths)),
            int(np.quantile(lengths, 0.9)),
            int(lengths.max()),
        ),
        labels=ordered,
        rare=tuple(label for label, count in ordered.items() if count < FEW_TEXTS),
        repeats=repeats(examples),
        overlaps=label_overlaps(documents, [e.labels for e in examples]),
        among_judged=sum(same_text(example.text) in known for example in judged),
    )


def same_text(text: str) -> str:
    """Return a text without differences in case and spacing."""
    return " ".join(text.casefold().split())


def repeats(examples: Sequence[Example]) -> tuple[Repeated, ...]:
    """Return the texts that come more than once, most copies first."""
    groups: dict[str, list[Example]] = defaultdict(list)
    for example in examples:
        groups[same_text(example.text)].append(example)
    found = [
        Repeated(
            group[0].text,
            len(group),
            tuple(dict.fromkeys(tuple(sorted(each.labels)) for each in group)),
        )
        for group in groups.values()
        if len(group) > 1
    ]
    return tuple(sorted(found, key=lambda each: -each.copies))


def label_overlaps(
    documents: Sequence[Sequence[str]],
    labels: Sequence[Sequence[str]],
    *,
    top: int = 5,
) -> tuple[Overlap, ...]:
    """Return the pairs of labels with the most similar words, most similar first.

    A label's words are the mean of its texts' TF-IDF vectors. Words that most texts
    have weigh little in them.

    Args:
        documents: the words of each text.
        labels: the labels of each text.
        top: the largest number of pairs.
    """
    rows = np.linspace(0, len(documents) - 1, min(len(documents), MAX_COMPARED))
    kept = [int(row) for row in rows.round()]
    names = sorted({label for row in kept for label in labels[row]})
    if len(names) < 2 or not any(documents[row] for row in kept):
        return ()
    centres, words = label_centres(
        [documents[row] for row in kept], [labels[row] for row in kept], names
    )
    similar = np.triu(centres @ centres.T, 1)  # (J, J)
    order = np.argsort(-similar, axis=None, kind="stable")[:top]
    found = []
    for row, column in zip(*np.unravel_index(order, similar.shape), strict=True):
        if similar[row, column] <= 0:
            break
        shared = centres[row] * centres[column]  # (V,)
        strongest = np.argsort(-shared, kind="stable")[:SHARED_WORDS]
        found.append(
            Overlap(
                names[row],
                names[column],
                float(similar[row, column]),
                tuple(str(words[place]) for place in strongest if shared[place] > 0),
            )
        )
    return tuple(found)


def label_centres(
    documents: Sequence[Sequence[str]],
    labels: Sequence[Sequence[str]],
    names: Sequence[str],
) -> tuple[NDArray, NDArray]:
    """Return each label's mean TF-IDF vector (J, V), of length 1, and the V words."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    analyzer: Any = meaningful  # its stubs know no analyzer that is a function
    vectorizer = TfidfVectorizer(analyzer=analyzer, sublinear_tf=True)
    try:
        vectors: Any = vectorizer.fit_transform(documents)  # (N, V)
    except ValueError:  # no word but punctuation
        return np.zeros((len(names), 1)), np.array([""])
    place: Mapping[str, int] = {name: number for number, name in enumerate(names)}
    has = np.zeros((len(names), len(documents)))  # (J, N)
    for row, own in enumerate(labels):
        has[[place[label] for label in own], row] = 1
    sums = has @ vectors  # (J, V)
    norms = np.linalg.norm(sums, axis=1, keepdims=True)
    centres = sums / np.where(norms > 0, norms, 1)
    return centres, vectorizer.get_feature_names_out()


def meaningful(words: Sequence[str]) -> list[str]:
    """Return the words that may belong to a topic."""
    return [w for w in words if not is_function_word(w) and w not in DENIALS]
