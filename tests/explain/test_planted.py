"""Explanations against a planted truth: the sentences written for each topic.

The tickets' own spans mark the core of a sentence that speaks for a topic. A model may
rightly go by the rest of that sentence too ("... is wrong, so it will end up in another
town"), for it stands in no other topic's tickets; deleting such words moves its scores
most. So a phrase counts as planted if it lies, mostly, in a sentence of its topic.
"""

from collections import defaultdict
from statistics import mean
from unittest import mock

import pytest

from textcapsules.classifier import TextClassifier
from textcapsules.data.example import Example
from textcapsules.data.tickets import Ticket, make_tickets
from textcapsules.data.tickets.generate import Sentence, Writer
from textcapsules.explain.corpus import explain_corpus
from textcapsules.explain.texts import DEFAULT_METHOD, explain
from textcapsules.explain.types import Explanation, LabelPhrases, Phrase
from textcapsules.text.tokenize import tokenize
from textcapsules.training.run import train
from toy import tiny_config, write_csv

LEAD = "a lead"  # what stands before the topic's sentence: "Also, ", an aside
SIZES = {"n_train": 1500, "n_dev": 1, "n_test": 1, "n_multi": 80}


def make_marked_tickets() -> list[Ticket]:
    """Return the multi-topic tickets with spans over whole sentences of a topic."""
    after, typed = Sentence.after, Writer.typed

    def after_marked(sentence: Sentence, lead: str) -> Sentence:
        first, *rest = after(sentence, lead).pieces
        return sentence._replace(pieces=(first._replace(topic=LEAD), *rest))

    def type_marked(writer: Writer, sentences: list[Sentence], topics: list) -> Ticket:
        marked = [
            sentence._replace(
                pieces=tuple(
                    piece._replace(
                        topic=None if piece.topic == LEAD else sentence.topic
                    )
                    for piece in sentence.pieces
                )
            )
            for sentence in sentences
        ]
        return typed(writer, marked, topics)

    with (
        mock.patch.object(Sentence, "after", after_marked),
        mock.patch.object(Writer, "typed", type_marked),
    ):
        return list(make_tickets(**SIZES).multi)


@pytest.fixture(scope="module")
def tickets() -> list[Ticket]:
    return make_marked_tickets()


@pytest.fixture(scope="module")
def classifier(tmp_path_factory) -> TextClassifier:
    folder = tmp_path_factory.mktemp("tickets")
    rows = [(ticket.text, *ticket.topics) for ticket in make_tickets(**SIZES).train]
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


def is_planted(ticket: Ticket, phrase: Phrase, topic: str) -> bool:
    covered = sum(
        max(0, min(span.end, phrase.end) - max(span.start, phrase.start))
        for span in ticket.spans
        if span.topic == topic
    )
    return 2 * covered >= phrase.end - phrase.start


def share_planted(tickets: list[Ticket], explanations: list[Explanation]) -> float:
    """Precision at 3, over the labels that were rightly predicted."""
    hits = [
        is_planted(ticket, phrase, found.label)
        for ticket, explanation in zip(tickets, explanations, strict=True)
        for found in explanation.labels
        if found.predicted and found.label in ticket.topics
        for phrase in found.phrases[:3]
    ]
    assert len(hits) > len(tickets)
    return sum(hits) / len(hits)


def test_marked_tickets_are_the_tickets_with_wider_spans(tickets):
    plain = make_tickets(**SIZES).multi
    assert [ticket.text for ticket in tickets] == [ticket.text for ticket in plain]
    for ticket, marked in zip(plain, tickets, strict=True):
        for span in ticket.spans:
            assert any(
                wide.start <= span.start and span.end <= wide.end
                for wide in marked.spans
                if wide.topic == span.topic
            )


@pytest.mark.parametrize("method", [DEFAULT_METHOD, "contributions"])
def test_phrases_of_a_label_are_the_planted_ones(classifier, tickets, method):
    texts = [ticket.text for ticket in tickets]
    explanations = explain(classifier, texts, method=method)
    n_labels = sum(len(explanation.predicted) for explanation in explanations)
    assert n_labels > len(tickets)
    assert share_planted(tickets, explanations) >= 0.9


def test_words_of_the_orphan_are_those_of_any_topic(classifier):
    """Whatever the topic, they occur: background. A label's words are its own."""
    examples = [Example(*ticket[:2]) for ticket in make_tickets(**SIZES).train[:500]]
    found = explain_corpus(classifier, examples, method="couplings", top=15)
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
