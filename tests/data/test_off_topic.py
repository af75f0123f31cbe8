"""The off-topic texts: two halves without a common sentence, the same for ever."""

import hashlib
import itertools
import json
import re
from collections import Counter

import pytest

from textcapsules.base.errors import ConfigError
from textcapsules.data.off_topic import (
    HALVES,
    KINDS,
    general_texts,
    make_off_topic,
    read_phrases,
)
from textcapsules.data.tickets.generate import read_banks

# Of both halves. It changes only when the texts are meant to.
CHECKSUM = "1b0b201b6f4f50897acc081e382f6fbdbbf4766d73ee4ab287b3fd740a5a4dce"


@pytest.fixture(scope="module")
def halves():
    return {half: make_off_topic(half) for half in HALVES}


def test_texts_never_change(halves):
    content = json.dumps([halves[half] for half in HALVES])
    assert hashlib.sha256(content.encode()).hexdigest() == CHECKSUM


def test_every_kind_and_size_is_there(halves):
    for texts in halves.values():
        assert len({each.text for each in texts}) == len(texts) == 600
        counts = Counter((each.kind, each.size) for each in texts)
        assert set(counts) == set(
            itertools.product(KINDS, ("short", "middling", "long"))
        )
        assert set(counts.values()) == {40}
        sizes = {each.size: len(each.text.split()) for each in texts}
        assert sizes["short"] < sizes["middling"] < 200 <= sizes["long"]


def test_halves_share_no_sentence():
    one, other = (read_phrases(half) for half in HALVES)
    for kind in ("news", "recipes", "languages", "everyday"):
        # With every choice left out, what remains is the wording.
        bare = [
            {re.sub(r"\{.*?\}", "", line) for line in part[kind]}
            for part in (one, other)
        ]
        assert len(bare[0]) >= 30 and len(bare[1]) >= 30
        assert not bare[0] & bare[1]
    assert not set(one["onsets"]) & set(other["onsets"])


def test_no_template_of_the_tickets_is_among_them():
    background, topics = read_banks("test")
    tickets = {
        template
        for bank in (background, *topics)
        for templates in bank.templates.values()
        for template in templates
    }
    for half in HALVES:
        phrases = read_phrases(half)
        assert not tickets & {*phrases["news"], *phrases["recipes"]}


def test_general_texts_share_no_sentence_with_either_half(halves):
    general = set(general_texts())
    assert len(general) == len(general_texts()) > 300
    for texts in halves.values():
        sentences = {s for each in texts for s in re.split(r"(?<=[.!?])\s", each.text)}
        assert not general & sentences


def test_another_seed_gives_other_texts():
    one, other = (make_off_topic("held-out", per_kind=6, seed=seed) for seed in (0, 1))
    assert one == make_off_topic("held-out", per_kind=6)
    assert {each.text for each in one} != {each.text for each in other}


def test_unknown_half_is_refused():
    with pytest.raises(ConfigError, match="development or held-out"):
        make_off_topic("test")
