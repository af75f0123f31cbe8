"""Texts off all topics, from a seeded generator.

News, recipes, other languages, invented words, and everyday sentences in common words.

A classifier should give none of them a label (`model.outside`). The sentences are our
own, in two halves that share no wording: what refuses texts is chosen on `development`
and judged on `held-out`, whose languages are partly other ones, too. Each kind has
short texts (one sentence), middling and long ones (200 words): evidence must not add up
with length.

`general_texts` are sentences on everything, our own too, from which a model learns
which words are common in general. They share no sentence with either half.
"""

import re
import tomllib
from collections.abc import Callable
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

from textcapsules.base.errors import ConfigError
from textcapsules.data.tickets.generate import Dice

__all__ = ["HALVES", "KINDS", "OffTopic", "general_texts", "make_off_topic"]

HALVES = ("development", "held-out")
KINDS = ("news", "recipes", "languages", "invented", "everyday")
LONG_WORDS = 200
CHOICE = re.compile(r"\{([^{}]*)\}")


class OffTopic(NamedTuple):
    """A text that deserves no label."""

    text: str
    kind: str  # one of KINDS
    size: str  # "short", "middling" or "long"


def make_off_topic(half: str, *, per_kind: int = 120, seed: int = 0) -> list[OffTopic]:
    """Return the texts of one half, no text twice: a third of each size and kind.

    Args:
        half: "development" or "held-out".
        per_kind: texts of each kind.
        seed: another seed gives other texts of the same sentences.

    >>> texts = make_off_topic("development", per_kind=3)
    >>> [(each.kind, each.size) for each in texts[:3]]
    [('news', 'short'), ('news', 'middling'), ('news', 'long')]
    """
    if half not in HALVES:
        raise ConfigError(f"half must be {' or '.join(HALVES)}; got {half!r}.")
    phrases = read_phrases(half)
    dice = Dice(2 * seed + HALVES.index(half))
    texts: dict[str, OffTopic] = {}
    for kind in KINDS:
        sentence = sentence_source(kind, phrases, dice)
        sizes = {
            "short": lambda draw=sentence: draw(),
            "middling": lambda draw=sentence: join(draw, 2 + dice.below(3)),
            "long": lambda draw=sentence: join_words(draw, LONG_WORDS),
        }
        for number in range(per_kind):
            size = tuple(sizes)[number % 3]
            text = sizes[size]()
            for _ in range(100):  # until it is new; a kind has few short texts
                if text not in texts:
                    break
                text = sizes[size]()
            texts[text] = OffTopic(text, kind, size)
    return list(texts.values())


@cache
def general_texts() -> tuple[str, ...]:
    """Return sentences on everything: home, weather, war, science, small talk.

    >>> general_texts()[0][:40]
    'We moved the sofa to the other side of t'
    """
    file = resources.files("textcapsules.data.off_topic") / "general.txt"
    lines = file.read_text(encoding="utf-8").splitlines()
    return tuple(line for line in lines if line and not line.startswith("#"))


@cache
def read_phrases(half: str) -> dict[str, Any]:
    """Return the sentences and syllables of one half."""
    folder = resources.files("textcapsules.data.off_topic")
    file = folder / f"{half.replace('-', '_')}.toml"
    return tomllib.loads(file.read_text(encoding="utf-8"))


def sentence_source(kind: str, phrases: dict[str, Any], dice: Dice) -> Callable:
    """Return what draws one sentence of a kind."""
    if kind == "invented":
        return lambda: invented_sentence(phrases, dice)
    return lambda: fill(phrases[kind][dice.below(len(phrases[kind]))], dice)


def fill(template: str, dice: Dice) -> str:
    """Return a sentence with each `{this|that}` decided."""

    def choose(match: re.Match[str]) -> str:
        options = match[1].split("|")
        return options[dice.below(len(options))]

    return CHOICE.sub(choose, template)


def invented_sentence(phrases: dict[str, Any], dice: Dice) -> str:
    """Return words that no language has: pronounceable ones, or letters at random."""
    word = syllables if dice.chance(0.5) else random_letters
    words = [word(phrases, dice) for _ in range(4 + dice.below(8))]
    return " ".join(words).capitalize() + "."


def syllables(phrases: dict[str, Any], dice: Dice) -> str:
    """Return a word of two or three syllables."""
    parts = [phrases["onsets"], phrases["vowels"], phrases["codas"]]
    drawn = parts * (2 + dice.below(2))
    return "".join(each[dice.below(len(each))] for each in drawn)


def random_letters(phrases: dict[str, Any], dice: Dice) -> str:
    """Return four to nine letters."""
    letters = phrases["letters"]
    return "".join(letters[dice.below(len(letters))] for _ in range(4 + dice.below(6)))


def join(draw: Callable[[], str], n_sentences: int) -> str:
    """Return some sentences as one text."""
    return " ".join(draw() for _ in range(n_sentences))


def join_words(draw: Callable[[], str], n_words: int) -> str:
    """Return sentences until they have enough words."""
    sentences: list[str] = []
    while sum(len(each.split()) for each in sentences) < n_words:
        sentences.append(draw())
    return " ".join(sentences)
