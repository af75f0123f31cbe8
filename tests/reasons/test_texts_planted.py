"""Explanations against a planted truth: what the generator writes for each topic.

The tickets tell two things. Their spans mark the few words of a sentence that name its
topic; their sentences are the whole of what was written for it. A model may rightly go
by the rest of such a sentence ("... so it will end up in another town"), for it stands
in no other topic's tickets, and deleting it moves its scores. So the criterion is the
sentence: of the three strongest phrases of a label, nine in ten lie, mostly, in one
written for it. Of the marked words alone the model need not know, yet most of what it
names are those.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from statistics import mean

import pytest

from textcapsules.data.example import Example
from textcapsules.data.tickets import Span, Ticket, make_tickets
from textcapsules.model.classifier import TextClassifier
from textcapsules.reasons.corpus import explain_corpus
from textcapsules.reasons.explanation import (
    CorpusExplanation,
    Explanation,
    LabelPhrases,
    Phrase,
)
from textcapsules.reasons.texts import explain
from textcapsules.text.tokenize import tokenize
from textcapsules.training.run import train
from toy import tiny_config, write_csv

pytestmark = pytest.mark.slow

SIZES = {"n_train": 1500, "n_dev": 1, "n_test": 1, "n_multi": 80}


@pytest.fixture(scope="module")
def splits():
    return make_tickets(**SIZES)


@pytest.fixture(scope="module")
def classifier(splits, tmp_path_factory) -> TextClassifier:
    folder = tmp_path_factory.mktemp("tickets")
    rows = [(ticket.text, *ticket.topics) for ticket in splits.train]
    config = tiny_config(
        write_csv(folder / "tickets.csv", rows),
        model={
            "embedding_size": 32,
            "filters": 24,
            "capsule_types": 8,
            "capsule_size": 8,
            "conv_capsules": False,
            "dropout": 0.2,
        },
        train={
            "task": "multi-label",
            "epochs": 6,
            "batch_size": 25,
            "learning_rate": 0.004,
            "joined": 0.5,
        },
    )
    return train(config, folder / "model")


def is_planted(spans: Sequence[Span], phrase: Phrase, topic: str) -> bool:
    covered = sum(
        max(0, min(span.end, phrase.end) - max(span.start, phrase.start))
        for span in spans
        if span.topic == topic
    )
    return 2 * covered >= phrase.end - phrase.start


def share_planted(
    tickets: Sequence[Ticket],
    explanations: Sequence[Explanation],
    planted: Callable[[Ticket], Sequence[Span]],
) -> float:
    """Precision at 3, over the labels that were rightly predicted."""
    hits = [
        is_planted(planted(ticket), phrase, found.label)
        for ticket, explanation in zip(tickets, explanations, strict=True)
        for found in explanation.labels
        if found.predicted and found.label in ticket.topics
        for phrase in found.phrases[:3]
    ]
    assert len(hits) > len(tickets)
    return sum(hits) / len(hits)


@pytest.mark.parametrize("method", ["couplings", "contributions"])
def test_phrases_of_a_label_are_the_planted_ones(classifier, splits, method):
    tickets = splits.multi
    explanations = explain(classifier, [t.text for t in tickets], method=method)
    in_sentences = share_planted(tickets, explanations, lambda t: t.sentences)
    in_spans = share_planted(tickets, explanations, lambda t: t.spans)
    assert in_sentences >= 0.9  # 0.97 and 0.99 as measured
    assert in_spans >= 0.6  # 0.72 and 0.72


def test_a_phrase_of_another_topics_sentence_is_not_planted(splits):
    ticket = splits.multi[0]
    span = ticket.sentences[0]
    text = ticket.text[span.start : span.end]
    phrase = Phrase(text, span.start, span.end, strength=1.0, ngram_size=3)
    assert is_planted(ticket.sentences, phrase, span.topic)
    others = [topic for topic in ticket.topics if topic != span.topic]
    assert others
    assert not any(is_planted(ticket.sentences, phrase, topic) for topic in others)


@pytest.fixture(scope="module")
def examples(splits) -> list[Example]:
    return [Example(*ticket[:2]) for ticket in splits.train[:500]]


@pytest.fixture(scope="module")
def found(classifier, examples) -> CorpusExplanation:
    return explain_corpus(classifier, examples, method="couplings", top=15)


def test_words_of_the_orphan_are_those_of_any_topic(found, examples):
    """Whatever the topic, they occur: background. A label's words are its own."""
    topics_of: dict[str, set[str]] = defaultdict(set)
    for example in examples:
        for piece in tokenize(example.text, "words"):
            topics_of[piece.text] |= set(example.labels)

    def mean_topics(column: LabelPhrases) -> float:
        return mean([len(topics_of[word.text]) for word in column.words])

    assert found.orphan is not None
    orphan, n_topics = mean_topics(found.orphan), len(found.labels)
    assert orphan >= 0.9 * n_topics
    assert orphan >= 1.2 * mean(map(mean_topics, found.labels))


def test_phrases_of_the_orphan_are_not_background(classifier, splits):
    """The strongest couplings of all are those of the longest capsules: the topics'.

    The orphan gets its share of these too. Added up over a word's many occurrences its
    couplings are background; in one text its strongest phrases are the topic's.
    """
    tickets = splits.train[:200]
    explanations = explain(
        classifier, [t.text for t in tickets], method="couplings", verify=False
    )
    hits = [
        is_planted(ticket.sentences, phrase, ticket.topics[0])
        for ticket, explanation in zip(tickets, explanations, strict=True)
        if explanation.orphan is not None
        for phrase in explanation.orphan.phrases[:3]
    ]
    written = sum(end - start for t in tickets for start, end, _ in t.sentences)
    assert written < 0.6 * sum(len(ticket.text) for ticket in tickets)
    assert mean(hits) >= 0.8  # 0.91 as measured
