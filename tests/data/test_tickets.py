"""The embedded synthetic tickets: the same for ever, fair, and hard enough."""

import re
import tomllib
from importlib import resources
from itertools import chain

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

from textcapsules.base.errors import ConfigError
from textcapsules.data.tickets import TICKETS, checksum, make_tickets, read_tickets
from textcapsules.data.tickets.generate import Dice, Hand, roughen

# Of all default tickets, spans included. It changes only when the corpus is meant to.
CHECKSUM = "0ae1fe026d08f9310dbab01a6373c6016bcf14cdf1e31bc8d6ba6690d8e143a0"
TINY = {"n_train": 60, "n_dev": 20, "n_test": 20, "n_multi": 20}


@pytest.fixture(scope="module")
def splits():
    return make_tickets()


@pytest.fixture(scope="module")
def bank_files():
    folder = resources.files("textcapsules.data.tickets") / "phrases"
    return {
        entry.name: tomllib.loads(entry.read_text(encoding="utf-8"))
        for entry in folder.iterdir()
        if entry.name.endswith(".toml")
    }


def occurs(fragment, text):
    pattern = re.compile(rf"(?<!\w){re.escape(fragment.lower())}(?!\w)")
    return fragment.lower() in text and bool(pattern.search(text))


def lowered(tickets):
    return "\n".join(ticket.text.lower() for ticket in tickets)


def longest_literal(template):
    """Return the longest stretch of a template without slots, choices or marks."""
    parts = re.split(r"\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}|[#\[\]]", template)
    return max(parts, key=len).strip(" .,:;?!")


def test_default_corpus_has_its_checksum(splits):
    assert checksum(*splits) == CHECKSUM


def test_same_seed_gives_same_tickets_and_another_seed_others():
    first, second = make_tickets(**TINY, seed=3), make_tickets(**TINY, seed=3)
    other = make_tickets(**TINY, seed=4)
    assert first == second
    assert not {t.text for t in first.train} & {t.text for t in other.train}


def test_test_sets_do_not_depend_on_the_size_of_training():
    small = make_tickets(**TINY)
    large = make_tickets(**{**TINY, "n_train": 200, "n_dev": 50})
    assert (small.test, small.multi) == (large.test, large.multi)


def test_default_sizes_and_lengths(splits):
    assert [len(split) for split in splits] == [4000, 500, 1000, 500]
    words = [len(ticket.text.split()) for ticket in splits.train]
    assert 30 <= np.mean(words) <= 45
    assert min(words) <= 5 and max(words) >= 70


def test_every_label_occurs_in_every_split(splits):
    assert len(TICKETS.labels) >= 10
    for split in splits:
        topics = set(chain.from_iterable(ticket.topics for ticket in split))
        assert topics == set(TICKETS.labels)


def test_number_of_topics(splits):
    for ticket in (*splits.train, *splits.dev, *splits.test):
        assert len(ticket.topics) == 1
    assert {len(set(ticket.topics)) for ticket in splits.multi} == {2, 3}


def test_spans_lie_in_the_text_and_cover_exactly_the_topics(splits):
    for ticket in chain(*splits):
        end = 0
        for span in ticket.spans:
            assert end <= span.start < span.end <= len(ticket.text)
            phrase = ticket.text[span.start : span.end]
            assert phrase == phrase.strip() and phrase
            end = span.end
        assert {span.topic for span in ticket.spans} == set(ticket.topics)


def test_sentences_hold_the_spans_and_nothing_said_of_another_topic(splits):
    for ticket in chain(*splits):
        end = 0
        for planted in ticket.sentences:
            assert end <= planted.start < planted.end <= len(ticket.text)
            sentence = ticket.text[planted.start : planted.end]
            assert sentence == sentence.strip() and sentence
            end = planted.end
            inside = [
                span
                for span in ticket.spans
                if span.start < planted.end and planted.start < span.end
            ]
            assert inside
            for span in inside:
                assert planted.start <= span.start and span.end <= planted.end
                assert span.topic == planted.topic
        held = sum(
            planted.start <= span.start < planted.end
            for span in ticket.spans
            for planted in ticket.sentences
        )
        assert held == len(ticket.spans)


def test_what_is_put_before_a_sentence_is_no_part_of_it(splits, bank_files):
    background = bank_files["background.toml"]
    leads = [
        lead.strip()
        for part in ("seen", "unseen")
        for kind in ("links", "turns")
        for lead in background[part].get(kind, [])
        if not re.search(r"[{|#]", lead)
    ]
    met = joined = 0
    for ticket in splits.multi:
        for start, end, _ in ticket.sentences:
            before, inside = ticket.text[:start], ticket.text[start:end]
            assert not inside.startswith(tuple(leads))
            met += before.rstrip().endswith(tuple(leads))
            joined += before.endswith(", but ")
    assert met > 50 and joined > 50


def test_spans_hold_the_planted_phrase(splits):
    # A phrase found elsewhere is evidence enough that the offsets survive the typos.
    phrases = [
        ticket.text[start:end]
        for ticket in splits.train
        for start, end, topic in ticket.spans
        if topic == "login"
    ]
    assert any("captcha" in phrase for phrase in phrases)
    assert not any("captcha" in phrase.lower() for phrase in _outside(splits.train))


def _outside(tickets):
    for ticket in tickets:
        end = 0
        for span in ticket.spans:
            yield ticket.text[end : span.start]
            end = span.end
        yield ticket.text[end:]


def test_topics_of_multi_tickets_are_interleaved(splits):
    orders = [[span.topic for span in ticket.spans] for ticket in splits.multi]
    returns = sum(
        any(a == c != b for a, b, c in zip(order, order[1:], order[2:], strict=False))
        for order in orders
    )
    assert returns > 50


def test_no_text_occurs_twice(splits):
    texts = [ticket.text for ticket in chain(*splits)]
    assert len(set(texts)) == len(texts)


def test_no_marks_of_the_templates_are_left(splits):
    for ticket in chain(*splits):
        assert not re.search(r"[{}\[\]|#]|  |^\s|\s$", ticket.text)


def test_unseen_templates_are_absent_from_training(splits, bank_files):
    train, dev = lowered(splits.train), lowered(splits.dev)
    tests = lowered((*splits.test, *splits.multi))
    met = 0
    for values in bank_files.values():
        assert len(values["unseen"].get("phrases", [])) >= 0.25 * len(
            values["seen"].get("phrases", [])
        )
        for kind, templates in values["unseen"].items():
            for index, template in enumerate(templates if kind != "fillers" else ()):
                literal = longest_literal(template)
                assert not occurs(literal, train), literal
                if kind == "phrases":
                    in_dev = index % 3 == 0
                    assert not occurs(literal, tests if in_dev else dev), literal
                    met += occurs(literal, dev if in_dev else tests)
    assert met > 80


def test_unseen_fillers_are_absent_from_training(splits, bank_files):
    train, tests = lowered(splits.train), lowered((*splits.test, *splits.multi))
    unseen = [
        filler
        for values in bank_files.values()
        for fillers in values["unseen"].get("fillers", {}).values()
        for filler in fillers
    ]
    assert not [filler for filler in unseen if occurs(filler, train)]
    assert sum(occurs(filler, tests) for filler in unseen) > 0.5 * len(unseen)


@pytest.mark.parametrize(
    "word",
    ["account", "card", "code", "lost", "order", "page", "reset", "slow", "update"],
)
def test_words_are_shared_between_topics(splits, word):
    topics = {
        topic
        for ticket in splits.train
        for start, end, topic in ticket.spans
        if re.search(rf"\b{word}", ticket.text[start:end].lower())
    }
    assert len(topics) >= 2


def test_other_topics_are_mentioned_in_passing(splits):
    negated = [t for t in splits.train if "payment went through fine" in t.text]
    assert negated
    assert all(ticket.topics != ("billing",) for ticket in negated)


def test_typos_are_there_and_rare(splits):
    known = set(re.findall(r"[a-z]+", lowered(splits.train[:2000])))
    later = re.findall(r"[a-z]+", lowered(splits.train[2000:]))
    strange = sum(word not in known for word in later) / len(later)
    assert 0.002 < strange < 0.05
    assert any(ticket.text == ticket.text.lower() for ticket in splits.train)
    assert any(re.search(r"\bcant\b", ticket.text.lower()) for ticket in splits.train)


def test_roughen_keeps_short_words_and_first_letters():
    hand = Hand(typo_rate=1.0, lower=False, apostrophes=False)
    rough = roughen("I can't see the invoice", hand, Dice(0)).split()
    assert rough[:4] == ["I", *rough[1:2], "see", "the"]
    assert "'" not in rough[1]
    assert rough[4][0] == "i" and rough[4] != "invoice"


def test_clean_hand_changes_nothing():
    hand = Hand(typo_rate=0.0, lower=False, apostrophes=True)
    assert roughen("I can't see it", hand, Dice(0)) == "I can't see it"


def test_tfidf_is_good_but_not_perfect(splits):
    # 0.88 as measured; outside this range the demo would be pointless or unfair.
    train = splits.train[:2000]
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, min_df=2)
    features = vectorizer.fit_transform([ticket.text for ticket in train])
    model = LogisticRegression(C=10, max_iter=200, tol=1e-3)
    model.fit(features, [ticket.topics[0] for ticket in train])
    predicted = model.predict(vectorizer.transform([t.text for t in splits.test]))
    truth = np.array([ticket.topics[0] for ticket in splits.test])
    assert 0.8 < np.mean(predicted == truth) < 0.95


@pytest.mark.parametrize(
    ("name", "task"), [("tickets", "single-label"), ("tickets-multi", "multi-label")]
)
def test_read_tickets_gives_a_corpus(name, task):
    corpus = read_tickets(name, **TINY, seed=1)
    splits = make_tickets(**TINY, seed=1)
    wanted = splits.test if task == "single-label" else splits.multi
    assert (corpus.name, corpus.task, corpus.rule) == (name, task, "words")
    assert corpus.labels == TICKETS.labels == tuple(sorted(TICKETS.labels))
    assert [e.text for e in corpus.train] == [t.text for t in splits.train]
    assert [tuple(e) for e in corpus.test] == [(t.text, t.topics) for t in wanted]
    assert corpus.facts["synthetic"] is True
    assert "ynthetic" in corpus.facts["title"]
    assert corpus.facts["seed"] == 1
    assert corpus.facts["sizes"] == {"train": 60, "dev": 20, "test": 20}


def test_unknown_name_is_refused():
    with pytest.raises(ConfigError, match=r"name must be one of tickets.*got 'ticket'"):
        read_tickets("ticket")


@pytest.mark.parametrize("size", ["n_train", "n_dev", "n_test", "n_multi"])
def test_empty_split_is_refused(size):
    with pytest.raises(ConfigError, match=rf"{size} must be at least 1; got 0"):
        make_tickets(**{**TINY, size: 0})


def test_negative_seed_is_refused():
    with pytest.raises(ConfigError, match="seed must be at least 0; got -1"):
        make_tickets(seed=-1)
