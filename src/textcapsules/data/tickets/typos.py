"""What hurried fingers do to a text, drawn from a seeded generator.

`Dice` is built on `random.Random.random` alone: it is the one method whose sequence
Python promises to keep across versions, and the tickets must never change.
"""

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

__all__ = ["Dice", "Hand", "draw_hand", "roughen"]

T = TypeVar("T")
# Short words are left alone: with a letter gone they become other words.
LONG_WORD = re.compile(r"[A-Za-z]{4,}")


class Dice:
    """Seeded draws that are the same on every platform and Python version."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed).random

    def below(self, n: int) -> int:
        """Return a whole number from 0 to n - 1."""
        return int(self._random() * n)

    def chance(self, probability: float) -> bool:
        """Return True with the given probability."""
        return self._random() < probability

    def pick(self, values: Sequence[T]) -> T:
        """Return one of the values, all equally likely."""
        return values[self.below(len(values))]

    def shuffled(self, values: Sequence[T]) -> list[T]:
        """Return the values in a random order."""
        rest = list(values)
        return [rest.pop(self.below(len(rest))) for _ in values]


@dataclass(frozen=True)
class Hand:
    """How one customer types."""

    typo_rate: float  # a long word's chance of a slip
    lower: bool  # never uses the shift key
    apostrophes: bool  # can't, not cant


def draw_hand(dice: Dice) -> Hand:
    """Draw a customer: most type cleanly, some carelessly, a few very carelessly."""
    return Hand(
        typo_rate=dice.pick((0.0, 0.0, 0.0, 0.0, 0.02, 0.02, 0.02, 0.05, 0.05, 0.12)),
        lower=dice.chance(0.1),
        apostrophes=not dice.chance(0.2),
    )


def roughen(text: str, hand: Hand, dice: Dice) -> str:
    """Return `text` as this customer would have typed it."""
    if not hand.apostrophes:
        text = text.replace("'", "")
    if hand.lower:
        text = text.lower()

    def slip(match: re.Match[str]) -> str:
        word = match[0]
        return _mistype(word, dice) if dice.chance(hand.typo_rate) else word

    return LONG_WORD.sub(slip, text) if hand.typo_rate else text


def _mistype(word: str, dice: Dice) -> str:
    """Swap two letters, drop one or double one; the first letter stays."""
    at = 1 + dice.below(len(word) - 2)
    kind = dice.below(3)
    if kind == 0:
        return word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    if kind == 1:
        return word[:at] + word[at + 1 :]
    return word[:at] + word[at] + word[at:]
