"""Figures as text, and rows of them as Markdown."""

import math
from collections.abc import Iterable, Sequence

from textcapsules.reproduce.statistics import Mean

__all__ = ["apart", "chance", "markdown", "shown", "told", "with_runs"]

NOTHING = "-"


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table; the first column stands left, the others right."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def shown(found: Mean | None) -> str:
    """Return a mean in percent with its spread.

    >>> shown(Mean(0.8231, 0.0049, 10)), shown(None)
    ('82.3 ± 0.5', '-')
    """
    if found is None:
        return NOTHING
    text = f"{100 * found.value:.1f}"
    return text if math.isnan(found.spread) else f"{text} ± {100 * found.spread:.1f}"


def with_runs(found: Mean | None) -> str:
    """Return a mean with the number of its runs."""
    return NOTHING if found is None else f"{shown(found)} ({found.runs})"


def told(figure: float | None) -> str:
    """Return a published figure."""
    return NOTHING if figure is None else f"{figure:.1f}"


def apart(found: Mean | None, figure: float | None) -> str:
    """Return ours less the published figure, in points.

    >>> apart(Mean(0.8231, 0.0049, 10), 82.0)
    '+0.3'
    """
    if found is None or figure is None:
        return NOTHING
    return f"{100 * found.value - figure:+.1f}"


def chance(p_value: float) -> str:
    """Return a p-value."""
    if math.isnan(p_value):
        return NOTHING
    return "< 0.001" if p_value < 0.001 else f"{p_value:.3f}"
