"""Pictures, each a pure function from values to the bytes of a PNG or an SVG."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from textcapsules.errors import DataError
from textcapsules.explain.drawing import Form, figure_bytes, new_axes
from textcapsules.explain.palette import LIGHT, N_COLOURS, label_style
from textcapsules.explain.types import Faithfulness
from textcapsules.metrics import shortened

__all__ = [
    "draw_convergence",
    "draw_curves",
    "draw_dev_scores",
    "draw_faithfulness",
    "draw_heat_map",
    "draw_histograms",
    "draw_loss",
]

MOST_NAMES = 120  # bars with their phrases below
DEV_SCORES = {
    "dev_accuracy": "dev accuracy",
    "dev_exact_match": "dev exact match",
    "dev_micro_f1": "dev micro F1",
}


def draw_histograms(
    strengths: Mapping[str, Sequence[float]],
    phrases: Sequence[str] | None = None,
    *,
    form: Form = "svg",
    places: Mapping[str, int] | None = None,
) -> bytes:
    """Draw how strongly every primary capsule of a text is tied to some categories.

    The bottom line of the paper's table 6: one panel a category, all on one scale.

    Args:
        strengths: by category, one a primary capsule, in the order of the text.
        phrases: their n-grams, written under the lowest panel if they fit.
        form: "png" or "svg".
        places: the place of each category among the model's labels, for its colour;
            one that has none, as the orphan, is grey.
    """
    if not strengths or len(set(map(len, strengths.values()))) > 1:
        raise DataError(
            "strengths must hold categories with one value a capsule each; got "
            f"{ {name: len(values) for name, values in strengths.items()} }."
        )
    n_bars = len(next(iter(strengths.values())))
    named = phrases is not None and len(phrases) == n_bars <= MOST_NAMES
    height = 0.35 + 0.95 * len(strengths) + (1.1 if named else 0.3)
    width = max(7.5, 0.13 * n_bars) if named else 7.5
    figure, panels = new_axes(width, height, rows=len(strengths))
    bars = np.arange(n_bars)
    places = places or {name: place for place, name in enumerate(strengths)}
    for axes, (name, values) in zip(panels, strengths.items(), strict=True):
        colour = LIGHT.labels[label_style(places[name])[0]] if name in places else None
        axes.bar(bars, values, width=0.8, color=colour or LIGHT.soft)
        axes.set_title(shortened(name), loc="left", parse_math=False, color=LIGHT.ink)
        axes.margins(x=0.01)
    last = panels[-1]
    if named:
        last.set_xticks(bars, [on_one_line(p, 24) for p in phrases or ()])
        for tick in last.get_xticklabels():
            tick.set(rotation=90, fontsize=7, parse_math=False)
    else:
        last.set_xlabel("primary capsules, in the order of the text")
    figure.supylabel("connection strength", color=LIGHT.soft, fontsize=9.5)
    return figure_bytes(figure, form)


def on_one_line(phrase: str, longest: int) -> str:
    """Return a phrase for an axis, without the line breaks of its text."""
    return shortened(" ".join(phrase.split()), longest)


def draw_heat_map(
    phrases: Sequence[str],
    labels: Sequence[str],
    strengths: NDArray,
    *,
    form: Form = "svg",
) -> bytes:
    """Draw how strongly each phrase (rows) speaks for each label (columns).

    Strengths at or below zero are left blank; the darkest is the strongest of all.
    """
    from matplotlib.patches import Rectangle

    values = np.asarray(strengths, dtype=float)
    if values.shape != (len(phrases), len(labels)) or not values.size:
        raise DataError(
            f"strengths must be {(len(phrases), len(labels))}, a row a phrase and a "
            f"column a label; got {values.shape}."
        )
    size = (2.6 + 0.5 * len(labels), 1.4 + 0.27 * len(phrases))
    figure, (axes,) = new_axes(*size)
    shades = np.clip(values, 0, None) / max(values.max(), 1e-12)
    for (row, column), shade in np.ndenumerate(shades):
        cell = Rectangle((column - 0.5, row - 0.5), 1, 1)
        cell.set(facecolor=LIGHT.accent, edgecolor=LIGHT.paper, alpha=float(shade))
        axes.add_patch(cell)
    axes.set(xlim=(-0.5, len(labels) - 0.5), ylim=(len(phrases) - 0.5, -0.5))
    axes.set_xticks(range(len(labels)), [shortened(label, 20) for label in labels])
    axes.set_yticks(
        range(len(phrases)), [on_one_line(phrase, 32) for phrase in phrases]
    )
    axes.tick_params(length=0)
    for tick in (*axes.get_xticklabels(), *axes.get_yticklabels()):
        tick.set_parse_math(False)
    for tick in axes.get_xticklabels():
        tick.set(rotation=45, ha="right")
    return figure_bytes(figure, form)


def draw_convergence(
    strongest: Sequence[float], entropy: Sequence[float], *, form: Form = "svg"
) -> bytes:
    """Draw how couplings sharpen: values after 1, 2, ... iterations of routing."""
    curves = {"strongest coupling": strongest, "entropy, of the greatest": entropy}
    x = range(1, len(strongest) + 1)
    return draw_curves(x, curves, "iterations of routing", form=form)


def draw_loss(epochs: Sequence[Mapping[str, Any]], *, form: Form = "svg") -> bytes:
    """Draw the training loss over the epochs of a training record."""
    loss = [record["loss"] for record in epochs]
    x = [record["epoch"] for record in epochs]
    return draw_curves(x, {"training loss": loss}, "epoch", form=form)


def draw_dev_scores(
    epochs: Sequence[Mapping[str, Any]], *, form: Form = "svg"
) -> bytes:
    """Draw the development scores over the epochs of a training record."""
    curves = {
        name: [record.get(key, np.nan) for record in epochs]
        for key, name in DEV_SCORES.items()
        if any(key in record for record in epochs)
    }
    return draw_curves([r["epoch"] for r in epochs], curves, "epoch", form=form)


def draw_faithfulness(
    found: Faithfulness, side: Literal["deleted", "kept"], *, form: Form = "svg"
) -> bytes:
    """Draw what is left of a label's length as tokens are deleted, or alone kept."""
    curves = {curves.method: getattr(curves, side) for curves in found.methods}
    return draw_curves(
        found.shares,
        curves,
        f"share of the tokens {side}, strongest first",
        "share of the length left",
        form=form,
    )


def draw_curves(
    x: Sequence[float],
    curves: Mapping[str, Sequence[float]],
    xlabel: str,
    ylabel: str = "",
    *,
    form: Form = "svg",
) -> bytes:
    """Draw curves over one axis, told apart by colour, line and point.

    The curve named "random" is a yardstick and is drawn in grey.
    """
    from matplotlib.ticker import MaxNLocator

    figure, (axes,) = new_axes(3.9, 2.9)
    for place, (name, y) in enumerate(curves.items()):
        is_yardstick = name == "random"
        axes.plot(
            x,
            y,
            color=LIGHT.soft if is_yardstick else LIGHT.labels[place % N_COLOURS],
            linestyle=":" if is_yardstick else ("-", "--")[place % 2],
            marker="osD^vPX"[place % 7],
            markersize=4,
            linewidth=1.6,
            label=name,
        )
    values = np.array([value for y in curves.values() for value in y], dtype=float)
    top = float(np.nanmax(values, initial=1e-9))
    axes.set(xlabel=xlabel, ylabel=ylabel, ylim=(0, 1.05 * top))
    if all(isinstance(value, int) for value in x):
        axes.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True, min_n_ticks=1))
    axes.grid(axis="y", color=LIGHT.rule, linewidth=0.7)
    axes.set_axisbelow(True)
    if curves:
        figure.legend(
            loc="outside upper left",
            ncols=2 if len(curves) < 5 else 3,
            frameon=False,
            fontsize=8,
            labelcolor=LIGHT.ink,
            handlelength=2.4,
        )
    return figure_bytes(figure, form)
