"""Which labels of a training file look wrong? Those that other texts speak against.

Confident learning (Northcutt, Jiang and Chuang 2021): each text is scored by a model
that was trained without it. p_ij is the share of label j in the scores of text i, and
t_j the mean p_ij of the texts that were given j. A text counts for the likeliest label
whose t_j it reaches; how often that is another label than the given one tells how many
labels of the file are wrong. As many texts are suspects: those that find another label
likelier than their own, by the largest margin.

The model is TF-IDF with a logistic regression per label, which takes seconds; any other
system can take its place. A label with fewer texts than folds is not judged.
"""

import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from textcapsules.base.checks import read_texts
from textcapsules.base.errors import ConfigError, InputError
from textcapsules.config import RunConfig
from textcapsules.data.example import Corpus, Example
from textcapsules.data.split import folds as draw_folds
from textcapsules.data.split import hold_out
from textcapsules.model.baselines.classic import TfidfLinear
from textcapsules.text.vocabulary import TextTokenizer
from textcapsules.training.run import train

__all__ = ["Suspect", "can_be_judged", "suspect_labels"]

C = 10.0  # chosen among 1, 10 and 100 on tickets and TREC with 5 % wrong labels
DEV_FRACTION = 0.1  # of the texts of a fold's training, for systems that need dev texts


class Suspect(NamedTuple):
    """A text whose label looks wrong."""

    row: int  # its place in the list, from 0
    text: str
    label: str  # as given
    suggested: str  # the likeliest
    confidence: float  # by how much it is likelier, from 0 to 1


def suspect_labels(
    texts: Sequence[str],
    labels: Sequence[str],
    *,
    folds: int = 5,
    seed: int = 0,
    rule: str = "words",
    config: RunConfig | None = None,
    on_fold: Callable[[int], None] | None = None,
) -> tuple[Suspect, ...]:
    """Return the texts whose label is probably wrong, the most suspect first.

    Args:
        texts: the texts.
        labels: the label of each.
        folds: parts into which the texts are cut; each part is judged by a model that
            was trained on the others.
        seed: decides which texts are in which part.
        rule: how texts are cut into words, by the linear model.
        config: the system that judges, in place of the linear model.
        on_fold: called with 1 after every fold.
    """
    texts, given = read_texts(texts), list(labels)
    if len(texts) != len(given):
        raise InputError(
            f"labels must be as many as texts, {len(texts):,}; got {len(given):,}."
        )
    names = sorted(set(given))
    if len(names) < 2:
        raise InputError(
            f"labels must be at least two different ones; got {names!r:.60}."
        )
    if not 2 <= folds <= len(texts):
        raise ConfigError(
            f"folds must be from 2 to the number of texts, {len(texts):,}; got {folds}."
        )
    column = {name: place for place, name in enumerate(names)}
    classes = np.array([column[label] for label in given])
    parts = draw_folds(given, seed, folds)
    if config is None:
        judge = linear_judge(texts, classes, len(names), rule)
    else:
        judge = system_judge(texts, given, names, config, seed)
    shares = np.zeros((len(texts), len(names)))  # (N, J)
    for fold in range(folds):
        held = np.flatnonzero(parts == fold)
        scores = judge(np.flatnonzero(parts != fold), held)
        shares[held] = scores / np.maximum(scores.sum(1, keepdims=True), 1e-12)
        if on_fold is not None:
            on_fold(1)
    rows, suggested, margins = least_likely(
        shares, classes, can_be_judged(given, folds)
    )
    return tuple(
        Suspect(int(row), texts[row], given[row], names[other], float(margin))
        for row, other, margin in zip(rows, suggested, margins, strict=True)
    )


def can_be_judged(labels: Sequence[str], folds: int) -> NDArray[np.bool_]:
    """Return which texts have a label that can be learnt without them.

    >>> can_be_judged(["a", "a", "b"], 2).tolist()
    [True, True, False]
    """
    counts = Counter(labels)
    return np.array([counts[label] >= folds for label in labels], dtype=bool)


def least_likely(
    shares: NDArray, classes: NDArray, can_judge: NDArray
) -> tuple[NDArray, NDArray, NDArray]:
    """Return rows whose label is unlikely, their likeliest labels, and the margins.

    Args:
        shares: (N, J), of rows that sum to 1, from models that did not see the text.
        classes: (N,), the labels as given.
        can_judge: (N,), whether the text's label could be learnt.
    """
    own = shares[np.arange(len(classes)), classes]  # (N,)
    likeliest = shares.argmax(1)
    margins = shares.max(1) - own
    wrong = np.flatnonzero((margins > 0) & can_judge)
    order = wrong[np.argsort(-margins[wrong], kind="stable")]
    kept = order[: n_wrong(shares[can_judge], classes[can_judge])]
    return kept, likeliest[kept], margins[kept]


def n_wrong(shares: NDArray, classes: NDArray) -> int:
    """Estimate how many of the given labels are wrong, from their confident joint.

    >>> shares = np.array([[0.9, 0.1]] * 8 + [[0.1, 0.9]] * 8)
    >>> n_wrong(shares, np.array([0] * 6 + [1] * 10))
    2
    """
    n_labels = shares.shape[1]
    own = shares[np.arange(len(classes)), classes]
    n_texts = np.bincount(classes, minlength=n_labels)  # (J,)
    sums = np.bincount(classes, own, minlength=n_labels)
    # A label that no text was given can be reached by none.
    limits = np.where(n_texts > 0, sums / np.maximum(n_texts, 1), np.inf)  # t, (J,)
    reached = np.where(shares >= limits, shares, -1.0)
    sure = reached.max(1) >= 0
    joint = np.zeros((n_labels, n_labels))  # given label, then the one it counts for
    np.add.at(joint, (classes[sure], reached.argmax(1)[sure]), 1)
    rates = joint / np.maximum(joint.sum(1, keepdims=True), 1)
    return round(float((n_texts * (rates.sum(1) - np.diag(rates))).sum()))


Judge = Callable[[NDArray, NDArray], NDArray]  # rows to learn from, rows to score


def linear_judge(
    texts: Sequence[str], classes: NDArray, n_classes: int, rule: str
) -> Judge:
    """Return a judge by TF-IDF and one logistic regression per label."""
    tokenizer = TextTokenizer.train(texts, rule=rule)
    documents = tokenizer.encode(texts, sys.maxsize)
    targets = np.eye(n_classes, dtype=np.float32)[classes]  # (N, J)

    def judge(learnt: NDArray, held: NDArray) -> NDArray:
        model = TfidfLinear(n_classes=n_classes, kind="lr", C=C, several=True)
        model.fit([documents[row] for row in learnt], targets[learnt])
        return model.scores([documents[row] for row in held])

    return judge


def system_judge(
    texts: Sequence[str],
    labels: Sequence[str],
    names: Sequence[str],
    config: RunConfig,
    seed: int,
) -> Judge:
    """Return a judge by any system that the options name."""
    examples = [
        Example(text, (label,)) for text, label in zip(texts, labels, strict=True)
    ]

    def judge(learnt: NDArray, held: NDArray) -> NDArray:
        groups = [labels[row] for row in learnt.tolist()]
        kept, dev = (
            [examples[row] for row in learnt[places].tolist()]
            for places in hold_out(groups, DEV_FRACTION, seed)
        )
        corpus = Corpus(
            "texts", tuple(names), kept, dev, [], "single-label", "words", {}
        )
        with tempfile.TemporaryDirectory(prefix="textcapsules-") as folder:
            place = Path(folder) / "model"
            model = train(config, place, corpus=corpus, test_reasons=False)
        return model.scores([texts[int(row)] for row in held])

    return judge
