"""The colours of pages and pictures, light and dark, declared once.

A label has the same colour, line and tag wherever it is shown. The colours come in two
sets of seven. Within a set, any two can be told apart under protanopia, deuteranopia
and tritanopia; a label of the second set has another line under its phrases. All can be
read as text on their paper (WCAG AA). Colour is never the only sign: a highlight also
has its label's tag, one or two letters.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

__all__ = [
    "DARK",
    "LIGHT",
    "LINES",
    "N_COLOURS",
    "SET_SIZE",
    "TINTS",
    "Theme",
    "label_style",
    "label_tags",
]


class Theme(NamedTuple):
    """One set of colours; `labels` are those of the labels, in their order."""

    paper: str
    panel: str
    ink: str
    soft: str  # less important text
    rule: str
    accent: str
    right: str
    wrong: str
    labels: tuple[str, ...]


LIGHT = Theme(
    paper="#ffffff",
    panel="#f4f5f7",
    ink="#1b1e23",
    soft="#565c66",
    rule="#d8dce2",
    accent="#275ca8",
    right="#1c6a3c",
    wrong="#a3260f",
    labels=(
        "#2c5cae",
        "#d32400",
        "#457f76",
        "#8d2c86",
        "#587034",
        "#25008e",
        "#70143f",
        "#6832b5",
        "#856d0a",
        "#056150",
        "#ac5d54",
        "#2d4d17",
        "#7d0867",
        "#a2336b",
    ),
)
DARK = Theme(
    paper="#15181d",
    panel="#1f242b",
    ink="#eceef1",
    soft="#a9b1bc",
    rule="#39404a",
    accent="#7fb6f5",
    right="#6fd39a",
    wrong="#ff9a85",
    labels=(
        "#32c6ff",
        "#ff8d17",
        "#20b188",
        "#ea95c7",
        "#ffe26b",
        "#7173ff",
        "#ee5a3a",
        "#b382ec",
        "#e2d231",
        "#49e8b1",
        "#f66277",
        "#6b8e31",
        "#cf5da7",
        "#d77da2",
    ),
)
N_COLOURS = len(LIGHT.labels)
SET_SIZE = 7  # colours that all eyes can tell apart
LINES = ("solid", "dashed", "dotted")
# Percentages of a colour mixed into the paper: a weak, a medium and a strong phrase.
TINTS = (8, 16, 25)


def label_style(place: int) -> tuple[int, str]:
    """Return the colour's number and the line of the label at `place`.

    >>> label_style(1), label_style(8), label_style(15)
    ((1, 'solid'), (8, 'dashed'), (1, 'dotted'))
    """
    return place % N_COLOURS, LINES[place // SET_SIZE % len(LINES)]


def label_tags(names: Sequence[str]) -> tuple[str, ...]:
    """Return one or two letters per label, no two the same.

    >>> label_tags(["billing", "birds", "feature-request", "x"])
    ('BI', 'BR', 'FR', 'X')
    """
    tags: list[str] = []
    for name in names:
        words = re.findall(r"[^\W_]+", name.upper())
        letters = "".join(words) or "?"
        initials = [words[0][0] + words[1][0]] if len(words) > 1 else []
        pairs = [letters[0] + letter for letter in letters[1:]] or [letters]
        numbered = [f"{letters[0]}{number}" for number in range(2, len(names) + 2)]
        options = (*initials, *pairs, *numbered)
        tags.append(next(tag for tag in options if tag not in tags))
    return tuple(tags)
