"""The figures of a model's report on labelled texts; `draw.report` makes a page of it.

`make_report` evaluates the model, explains the texts, and tests the explanations on a
sample of them. A model that cannot be explained is evaluated only. Where the training
texts are at hand, a simple rival is judged beside the model, and a card describes them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from textcapsules.base.errors import DataError, TextCapsulesError
from textcapsules.data.example import Corpus, Example
from textcapsules.data.load import load_corpus
from textcapsules.inference.compare.rivals import linear_rival
from textcapsules.inference.data_card import DataCard, data_card
from textcapsules.inference.evaluate import Evaluation, evaluate_scores
from textcapsules.inference.label_pairs import MixUp, co_occurrence, mix_ups
from textcapsules.inference.reliability import Reliability, reliability
from textcapsules.inference.rival import Comparison
from textcapsules.inference.suspects import Suspect, suspect_labels
from textcapsules.model.capsnet import CapsuleNetwork
from textcapsules.model.classifier import TextClassifier
from textcapsules.reasons.corpus import explain_corpus
from textcapsules.reasons.explanation import (
    CorpusExplanation,
    Explanation,
    Faithfulness,
)
from textcapsules.reasons.faithfulness import measure_faithfulness
from textcapsules.reasons.methods import can_explain, check_method, settle_method
from textcapsules.reasons.routing_inspection import (
    Connections,
    Convergence,
    connections,
    convergence,
)
from textcapsules.reasons.texts import explain
from textcapsules.training.prepare import target_matrix

__all__ = [
    "Explained",
    "Report",
    "ReportTable",
    "TrainingTexts",
    "make_report",
    "training_corpus",
    "training_texts",
]

FOLDS = 3  # parts into which the training texts are cut to look for wrong labels


class ReportTable(NamedTuple):
    """A table of the page; the first column names the rows."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[Any]]
    note: str = ""

    def is_numeric(self, column: int) -> bool:
        """Tell whether a column holds numbers only; "-" stands for a missing one."""
        cells = [str(row[column]) for row in self.rows]
        return all(cell == "-" or cell.lstrip("-")[:1].isdigit() for cell in cells)


@dataclass(frozen=True, slots=True)
class Explained:
    """What spoke for the labels: in all texts together, and in some one by one."""

    corpus: CorpusExplanation
    best: tuple[Explanation, ...]
    worst: tuple[Explanation, ...]
    connections: Connections | None  # of the first of the best
    convergence: Convergence | None  # None without capsules, or if no text got a label
    faithfulness: Faithfulness | None  # None if no sampled text got a label


@dataclass(frozen=True, slots=True)
class TrainingTexts:
    """What the training texts tell, and a rival that learnt from them."""

    card: DataCard
    comparison: Comparison | None  # None for a model that is such a rival itself
    suspects: tuple[Suspect, ...]  # labels that look wrong, the most suspect first


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that the page shows."""

    title: str
    lead: str
    source: str  # the texts' name
    classifier: TextClassifier
    evaluation: Evaluation
    confusion: NDArray | None  # (J, J), of texts with one label
    mix_ups: tuple[MixUp, ...]  # most frequent first
    explained: Explained | None  # None for a model that cannot be explained
    tables: tuple[ReportTable, ...] = ()  # shown beside the results
    reliability: Reliability | None = None
    together: tuple[NDArray, NDArray] | None = None  # labels that texts have, and got
    known: tuple[int, int] = (0, 0)  # words of the judged texts: known, read
    training: TrainingTexts | None = None
    missing: str = ""  # why nothing is said about the training texts

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as plain values, ready for JSON."""
        explained, training = self.explained, self.training
        faithfulness = None if explained is None else explained.faithfulness
        comparison = None if training is None else training.comparison
        return {
            "source": self.source,
            **self.evaluation.to_dict(),
            "method": None if explained is None else explained.corpus.method,
            "faithfulness": None if faithfulness is None else faithfulness.to_dict(),
            "reliability": (
                None if self.reliability is None else self.reliability.to_dict()
            ),
            "words": dict(zip(("known", "read"), self.known, strict=True)),
            "rival": None if comparison is None else comparison.to_dict(),
            "training": None if training is None else training.card.to_dict(),
            "suspects": None if training is None else len(training.suspects),
            "missing": self.missing or None,
        }


def make_report(
    classifier: TextClassifier,
    examples: Sequence[Example],
    *,
    source: str,
    title: str,
    lead: str = "",
    method: str | None = None,
    n_examples: int = 5,
    n_sampled: int | None = None,
    tables: Sequence[ReportTable] = (),
    confusion: NDArray | None = None,
    corpus: Corpus | None = None,
    rival: TextClassifier | None = None,
    missing: str = "",
    on_stage: Callable[[str], None] = lambda stage: None,
) -> Report:
    """Evaluate a model on labelled texts, and explain its labels.

    Args:
        classifier: the model.
        examples: the texts, with their labels.
        source: their name.
        title: of the page.
        lead: a few sentences below the title.
        method: what a phrase's strength is (see `explain`).
        n_examples: how many of the best and of the worst texts are shown.
        n_sampled: texts on which explanations are tested and routing is followed; by
            default 50, or 20 on an encoder, which reads every deletion anew.
        tables: further tables, shown beside the results.
        confusion: a matrix of other texts, shown where these carry several labels.
        corpus: the texts that the model learnt from. A rival learns from them too.
        rival: the linear model, where it has been trained already.
        missing: why there is no corpus.
        on_stage: called with the name of each stage as it begins.
    """
    if can_explain(classifier):
        method = settle_method(classifier, method)
    elif method is not None:
        check_method(method)
    if not examples:
        raise DataError(f"{source} must hold at least one labelled text; got none.")
    names, several = classifier.labels.names, classifier.labels.task == "multi-label"
    targets = target_matrix(examples, names, source)
    on_stage("judging")
    reading = classifier.read([example.text for example in examples])
    scores, outside = reading.scores, reading.outside
    thresholds = classifier.labels.thresholds
    chosen = classifier.decide(scores, outside=outside)
    right = (chosen == targets.astype(bool)).all(1)
    explained = None
    if can_explain(classifier):
        order = np.argsort(-certainty(scores, targets, thresholds, several=several))
        best = pick_best(examples, order, right, n_examples)
        if n_sampled is None:
            n_sampled = 50 if classifier.config.text.encoder is None else 20
        sizes = (n_examples, n_sampled)
        explained = explain_examples(
            classifier, examples, best, method, sizes, on_stage
        )
    evaluation = evaluate_scores(
        scores,
        targets,
        names,
        thresholds,
        several=several,
        outside=outside,
        at_least_one=classifier.labels.at_least_one,
    )
    training = None
    if corpus is not None:
        training = training_texts(classifier, corpus, examples, right, on_stage, rival)
    has_several = several or bool((targets.sum(1) > 1).any())
    return Report(
        title=title,
        lead=lead,
        source=source,
        classifier=classifier,
        evaluation=evaluation._replace(cut=reading.cuts),
        confusion=confusion if evaluation.confusion is None else evaluation.confusion,
        mix_ups=mix_ups(chosen, targets, names),
        explained=explained,
        tables=tuple(tables),
        reliability=reliability(scores, targets),
        together=(
            (co_occurrence(targets), co_occurrence(chosen)) if has_several else None
        ),
        known=(int(reading.known.sum()), int(reading.words.sum())),
        training=training,
        missing=missing,
    )


def training_corpus(classifier: TextClassifier) -> tuple[Corpus | None, str]:
    """Return the texts that a model learnt from, or why they cannot be had."""
    data, record = classifier.config.data, classifier.record
    name = Path(data.source).name
    try:
        corpus = load_corpus(data)
    except (TextCapsulesError, OSError):
        return None, f"its training texts, {name}, could not be read here"
    n_texts = record.get("texts", {}).get("train", len(corpus.train))
    if corpus.labels != classifier.labels.names or len(corpus.train) != n_texts:
        return None, f"{name} is no longer what the model was trained on"
    return corpus, ""


def training_texts(
    classifier: TextClassifier,
    corpus: Corpus,
    examples: Sequence[Example],
    right: NDArray,
    on_stage: Callable[[str], None],
    rival: TextClassifier | None = None,
) -> TrainingTexts:
    """Describe the texts that a model learnt from, and train its rival on them.

    Args:
        classifier: the model.
        corpus: its training and dev texts.
        examples: the texts it is judged on.
        right: (N,), whether the model got all labels of a text right.
        on_stage: called with the name of each stage as it begins.
        rival: the linear model, where it has been trained already.
    """
    config, labels = classifier.config, classifier.labels
    on_stage("reading the training texts")
    rule = classifier.tokenizer.rule
    rule = rule if rule in ("kim", "reuters") else "words"  # not pieces, not characters
    card = data_card(corpus.train, examples, labels=labels.names, rule=rule)
    comparison = None
    if config.model.architecture != "tfidf-lr":
        if rival is None:
            on_stage("training the linear rival")
            rival = linear_rival(corpus, config)
        reading = rival.read([example.text for example in examples])
        targets = target_matrix(examples, labels.names, corpus.name)
        several = labels.task == "multi-label"
        evaluation = evaluate_scores(
            reading.scores,
            targets,
            labels.names,
            rival.labels.thresholds,
            several=several,
            outside=reading.outside,
        )
        chosen = rival.decide(
            reading.scores, multi_label=several, outside=reading.outside
        )
        is_right = (chosen == targets.astype(bool)).all(1)
        comparison = Comparison.of(evaluation, right, is_right)
    on_stage("looking for wrong labels")
    return TrainingTexts(card, comparison, find_suspects(corpus.train, rule))


def find_suspects(examples: Sequence[Example], rule: str) -> tuple[Suspect, ...]:
    """Return the texts with one label whose label looks wrong, if that can be told."""
    single = [example for example in examples if len(example.labels) == 1]
    labels = [example.labels[0] for example in single]
    if len(set(labels)) < 2 or len(labels) < FOLDS:
        return ()
    texts = [example.text for example in single]
    return suspect_labels(texts, labels, folds=FOLDS, rule=rule)


def certainty(
    scores: NDArray, targets: NDArray, thresholds: Sequence[float], *, several: bool
) -> NDArray:
    """Return how far each text (N,) is from a wrong decision, below zero if wrong.

    With several labels that is the distance of its worst score from the threshold; with
    one label, the true label's lead over the next.
    """
    true = targets.astype(bool)
    if several:
        past = scores - np.asarray(thresholds, dtype=scores.dtype)
        return np.where(true, past, -past).min(1)
    lead = np.where(true, scores, -np.inf).max(1)
    return lead - np.where(true, -np.inf, scores).max(1)


def pick_best(
    examples: Sequence[Example], order: NDArray, right: NDArray, n_examples: int
) -> list[Example]:
    """Return the surest of the texts that got the right labels, no two labelled alike.

    Args:
        examples: the texts.
        order: their places, the surest first.
        right: (N,), whether a text got the right labels.
        n_examples: the largest number of texts.
    """
    best: dict[frozenset[str], Example] = {}
    for place in order:
        if right[place] and len(best) < n_examples:
            best.setdefault(frozenset(examples[place].labels), examples[place])
    return list(best.values())


def explain_examples(
    classifier: TextClassifier,
    examples: Sequence[Example],
    best: Sequence[Example],
    method: str | None,
    sizes: tuple[int, int],
    on_stage: Callable[[str], None],
) -> Explained:
    """Explain the texts together, and the best and the worst one by one.

    Args:
        classifier: as for `explain`.
        examples: the texts.
        best: those of them that came out best.
        method: as for `explain`.
        sizes: how many of the worst are explained, and how many of all are sampled.
        on_stage: called with the name of each stage as it begins.
    """
    n_examples, n_sampled = sizes
    on_stage("explaining")
    corpus = explain_corpus(classifier, examples, method=method, mistakes=n_examples)
    worst = [Example(mistake.text, mistake.true) for mistake in corpus.mistakes]
    explanations = explain(
        classifier,
        [example.text for example in (*best, *worst)],
        method=method,
        true=[example.labels for example in (*best, *worst)],
    )
    sample = spread_out([example.text for example in examples], n_sampled)
    labelled = [
        text
        for text, prediction in zip(sample, classifier.predict(sample), strict=True)
        if prediction.labels
    ]
    sharpening, best_connections = None, None
    if isinstance(classifier.network, CapsuleNetwork):
        on_stage("following the routing")
        sharpening = convergence(classifier, labelled) if labelled else None
        best_connections = connections(classifier, best[0].text) if best else None
    on_stage("testing the explanations")
    return Explained(
        corpus,
        tuple(explanations[: len(best)]),
        tuple(explanations[len(best) :]),
        best_connections,
        sharpening,
        # Only the method in use: `measure_faithfulness` compares all of them.
        measure_faithfulness(classifier, labelled, methods=[corpus.method])
        if labelled
        else None,
    )


def spread_out(texts: Sequence[str], n_texts: int) -> list[str]:
    """Return at most `n_texts` texts at even distances."""
    places = np.linspace(0, len(texts) - 1, min(n_texts, len(texts))).round()
    return [texts[int(place)] for place in places]
