"""The colours of pages and pictures, light and dark, declared once.

A label has the same colour wherever it is shown. The seven colours lie near those of
Okabe and Ito; they were chosen so that any two can be told apart under protanopia,
deuteranopia and tritanopia, and all can be read as text on their paper (WCAG AA). From
the eighth label on, the line under a phrase changes its style. Colour is never the only
sign: highlights are numbered too.
"""

from typing import NamedTuple

__all__ = ["DARK", "LIGHT", "LINES", "N_COLOURS", "TINTS", "Theme", "label_style"]


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
    ),
)
N_COLOURS = len(LIGHT.labels)
LINES = ("solid", "dashed", "dotted")
# Percentages of a colour mixed into the paper: a weak, a medium and a strong phrase.
TINTS = (8, 16, 25)


def label_style(place: int) -> tuple[int, str]:
    """Return the colour's number and the line of the label at `place`.

    >>> label_style(1), label_style(8)
    ((1, 'solid'), (1, 'dashed'))
    """
    return place % N_COLOURS, LINES[place // N_COLOURS % len(LINES)]
