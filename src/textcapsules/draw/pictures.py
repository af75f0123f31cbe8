"""Pictures: each is a pure function from values to the bytes of a PNG or an SVG.

An SVG is drawn in the light colours and carries a style that replaces each by its dark
one where the reader prefers that. Its letters stay letters in the reader's fonts, so
any script that the reader's fonts have can be read.
"""

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from html import unescape
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from warnings import catch_warnings, filterwarnings

import numpy as np
from numpy.typing import NDArray

from textcapsules.base.errors import ConfigError, DataError
from textcapsules.base.files import atomic_path
from textcapsules.draw.palette import DARK, LIGHT, N_COLOURS, Theme, label_style
from textcapsules.reasons.explanation import Faithfulness, Phrase, PhraseTotal

__all__ = [
    "Form",
    "can_draw_clouds",
    "check_form",
    "draw_cloud",
    "draw_convergence",
    "draw_curves",
    "draw_dev_scores",
    "draw_faithfulness",
    "draw_heat_map",
    "draw_histograms",
    "draw_loss",
    "draw_reliability",
    "draw_scaling",
    "figure_bytes",
    "new_axes",
    "plot_confusion",
    "shortened",
    "text_font",
    "with_dark_mode",
]

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from PIL.ImageFont import FreeTypeFont

Form = Literal["png", "svg"]
DOTS_PER_INCH = 160
FONTS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
MAX_NAMES = 120  # bars of a histogram that still have their phrases below
CLOUD_SIZE = (400, 220)
DEV_SCORES = {
    "dev_accuracy": "dev accuracy",
    "dev_exact_match": "dev exact match",
    "dev_micro_f1": "dev micro F1",
}


def check_form(form: str) -> None:
    """Refuse any other form of picture than PNG and SVG."""
    if form not in ("png", "svg"):
        raise ConfigError(f"form must be png or svg; got {form!r}.")


def new_axes(
    width: float, height: float, *, rows: int = 1, columns: int = 1
) -> tuple["Figure", list["Axes"]]:
    """Return a figure, its size in inches, and its axes.

    All have one vertical scale, and those of a column one horizontal scale.
    """
    from matplotlib.figure import Figure  # no pyplot: no global state, no display

    figure = Figure(figsize=(width, height), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharex="col", sharey=True)
    panels = list(grid.flat)
    for axes in panels:
        axes.set_facecolor("none")
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["bottom", "left"]].set_color(LIGHT.rule)
        axes.tick_params(colors=LIGHT.soft, labelsize=9, color=LIGHT.rule)
        for text in (axes.title, axes.xaxis.label, axes.yaxis.label):
            text.set(color=LIGHT.soft, fontsize=9.5)
    return figure, panels


def figure_bytes(figure: "Figure", form: Form) -> bytes:
    """Return the figure as a file's bytes, the same ones every time."""
    from matplotlib import rc_context

    check_form(form)
    options: Any = {"svg.fonttype": "none", "svg.hashsalt": "textcapsules"}
    facecolor = "none" if form == "svg" else LIGHT.paper
    metadata = {"Date": None} if form == "svg" else None
    buffer = io.BytesIO()
    with rc_context(options), catch_warnings():
        # In a PNG, scripts that the font lacks are drawn as boxes.
        filterwarnings("ignore", "Glyph .* missing from font")
        figure.savefig(
            buffer,
            format=form,
            dpi=DOTS_PER_INCH,
            facecolor=facecolor,
            metadata=metadata,
        )
    if form == "png":
        return buffer.getvalue()
    return with_dark_mode(buffer.getvalue().decode()).encode()


def with_dark_mode(svg: str) -> str:
    """Return an SVG in light colours with a style for dark mode."""
    rules = "".join(
        f'[style*="{part}: {light}"]{{{part}:{dark}!important}}'
        for light, dark in zip(colours(LIGHT), colours(DARK), strict=True)
        for part in ("fill", "stroke")
    )
    style = (
        f"<style>text{{font-family:{FONTS}!important}}"
        f"@media (prefers-color-scheme:dark){{{rules}}}</style>"
    )
    head, end, _ = svg.rpartition("</svg>")
    return f"{head}{style}{end}\n"


def colours(theme: Theme) -> Iterator[str]:
    """Yield every colour of a theme, in one order for all themes."""
    for value in theme:
        yield from (value,) if isinstance(value, str) else value


def draw_histograms(
    strengths: Mapping[str, Sequence[float]],
    phrases: Sequence[str] | None = None,
    *,
    form: Form = "svg",
    places: Mapping[str, int] | None = None,
) -> bytes:
    """Draw how strongly every primary capsule of a text is tied to some categories.

    The bottom row of the paper's table 6: one panel per category, all on one scale.

    Args:
        strengths: by category, one per primary capsule, in the order of the text.
        phrases: their n-grams, written under the lowest panel if they fit.
        form: "png" or "svg".
        places: the place of each category among the model's labels, for its colour;
            a category without a place, such as the orphan, is grey.
    """
    if not strengths or len(set(map(len, strengths.values()))) > 1:
        raise DataError(
            "strengths must hold categories with one value per capsule each; got "
            f"{ {name: len(values) for name, values in strengths.items()} }."
        )
    n_bars = len(next(iter(strengths.values())))
    has_names = phrases is not None and len(phrases) == n_bars <= MAX_NAMES
    height = 0.35 + 0.95 * len(strengths) + (1.1 if has_names else 0.3)
    width = max(7.5, 0.13 * n_bars) if has_names else 7.5
    figure, panels = new_axes(width, height, rows=len(strengths))
    bars = np.arange(n_bars)
    places = places or {name: place for place, name in enumerate(strengths)}
    for axes, (name, values) in zip(panels, strengths.items(), strict=True):
        colour = LIGHT.labels[label_style(places[name])[0]] if name in places else None
        axes.bar(bars, values, width=0.8, color=colour or LIGHT.soft)
        axes.set_title(shortened(name), loc="left", parse_math=False, color=LIGHT.ink)
        axes.margins(x=0.01)
    last = panels[-1]
    if has_names:
        last.set_xticks(bars, [on_one_line(p, 24) for p in phrases or ()])
        for tick in last.get_xticklabels():
            tick.set(rotation=90, fontsize=7, parse_math=False)
    else:
        last.set_xlabel("primary capsules, in the order of the text")
    figure.supylabel("connection strength", color=LIGHT.soft, fontsize=9.5)
    return figure_bytes(figure, form)


def on_one_line(phrase: str, longest: int) -> str:
    """Return a phrase for an axis, without line breaks."""
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
            f"strengths must be {(len(phrases), len(labels))}, one row per phrase and "
            f"one column per label; got {values.shape}."
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
    curves = {"strongest coupling": strongest, "entropy, share of the largest": entropy}
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
    faithfulness: Faithfulness, side: Literal["deleted", "kept"], *, form: Form = "svg"
) -> bytes:
    """Draw what is left of a label's length when tokens are deleted, or only kept."""
    curves = {curves.method: getattr(curves, side) for curves in faithfulness.methods}
    return draw_curves(
        faithfulness.shares,
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
    """Draw curves over one axis; they differ in colour, line and marker.

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
        outside_legend(figure, 2 if len(curves) < 5 else 3)
    return figure_bytes(figure, form)


def draw_reliability(
    scores: Sequence[float],
    shares: Sequence[float],
    pairs: Sequence[int],
    *,
    thresholds: tuple[float, float] | None = None,
    form: Form = "svg",
) -> bytes:
    """Draw a calibration curve: the share that is right against the score.

    Args:
        scores: the mean score of each bin.
        shares: which share of each bin is right.
        pairs: how many pairs of a text and a label each bin holds; the more, the larger
            its point.
        thresholds: the lowest and the highest, marked as a band.
        form: "png" or "svg".
    """
    figure, (axes,) = new_axes(4.3, 3.6)
    if thresholds is not None:
        low, high = thresholds
        axes.axvspan(low - 0.004, high + 0.004, color=LIGHT.rule, label="thresholds")
    axes.plot([0, 1], [0, 1], ":", color=LIGHT.soft, linewidth=1.4, label="ideal")
    axes.plot(scores, shares, color=LIGHT.accent, linewidth=1.6, label="this model")
    counts = np.sqrt(np.asarray(pairs, dtype=float))
    areas = 14 + 130 * counts / max(float(counts.max(initial=0)), 1.0)
    axes.scatter(
        scores, shares, areas, color=LIGHT.accent, edgecolors=LIGHT.paper, zorder=3
    )
    axes.set(
        xlim=(-0.03, 1.03),
        ylim=(-0.03, 1.03),
        xlabel="score of a label for a text",
        ylabel="share of such texts that have the label",
    )
    axes.grid(color=LIGHT.rule, linewidth=0.7)
    axes.set_axisbelow(True)
    outside_legend(figure, 3)
    return figure_bytes(figure, form)


# What grows in a record of `bench scaling`: its column, and its name for people.
GROWING = {
    "length": ("tokens", "tokens per text"),
    "classes": ("classes", "classes"),
    "batch": ("batch", "texts per step"),
    "threads": ("threads", "threads"),
}
WAYS = {"votes": "votes", "vote-free": "without votes", "auto": "kernels"}


def draw_scaling(rows: Sequence[Mapping[str, Any]], *, form: Form = "svg") -> bytes:
    """Draw the time of a training step: one panel per size that grows.

    Args:
        rows: of a record of `bench scaling`; those without a time are left out.
        form: "png" or "svg".
    """
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    timed = [row for row in rows if isinstance(row["ms"], int | float)]
    axes_names = [name for name in GROWING if any(r["grows"] == name for r in timed)]
    if not axes_names:
        raise DataError("rows must hold a time at a size that grows; got none.")
    width = 1.0 + 2.2 * len(axes_names)
    figure, panels = new_axes(width, 3.1, columns=len(axes_names))
    plain = FuncFormatter(lambda value, _: f"{value:,g}")
    for axes, name in zip(panels, axes_names, strict=True):
        column, title = GROWING[name]
        shown = [row for row in timed if row["grows"] == name]
        for place, (way, label) in enumerate(WAYS.items()):
            points = [(row[column], row["ms"]) for row in shown if row["way"] == way]
            if points:
                axes.plot(
                    *zip(*sorted(points), strict=True),
                    color=LIGHT.labels[place],
                    linestyle=("-", "--", "-.")[place],
                    marker="osD"[place],
                    markersize=4,
                    linewidth=1.6,
                    label=label,
                )
        axes.set(xscale="log", yscale="log", xlabel=title)
        sizes = sorted({row[column] for row in shown})
        axes.xaxis.set_major_locator(FixedLocator(sizes))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(plain)
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(plain)
        axes.grid(axis="y", color=LIGHT.rule, linewidth=0.7)
        axes.set_axisbelow(True)
    panels[0].set_ylabel("ms per training step")
    named: dict[str, Any] = {}
    for axes in panels:
        handles, labels = axes.get_legend_handles_labels()
        named |= dict(zip(labels, handles, strict=True))
    outside_legend(figure, 3, named)
    return figure_bytes(figure, form)


def outside_legend(
    figure: "Figure", columns: int, named: Mapping[str, Any] | None = None
) -> None:
    """Put the names of curves above a figure: of all, or of those in `named`."""
    chosen: Any = (list(named.values()), list(named)) if named else ()
    figure.legend(
        *chosen,
        loc="outside upper left",
        ncols=columns,
        frameon=False,
        fontsize=8,
        labelcolor=LIGHT.ink,
        handlelength=2.4,
    )


def plot_confusion(matrix: NDArray, labels: Sequence[str], path: Path | str) -> None:
    """Draw the confusion matrix, shaded by the share of each true class."""
    from matplotlib.figure import Figure  # no pyplot: no global state, no display

    size = min(3.0 + 0.45 * len(labels), 20)
    figure = Figure(figsize=(size + 1, size), layout="constrained")
    axes = figure.add_subplot()
    share = matrix / np.maximum(matrix.sum(1, keepdims=True), 1)
    image = axes.imshow(share, cmap="Blues", vmin=0, vmax=1)
    ticks = range(len(labels))
    axes.set(xlabel="predicted", ylabel="true", xticks=ticks, yticks=ticks)
    names = [shortened(label) for label in labels]
    axes.set_xticklabels(names, rotation=45, ha="right", parse_math=False)
    axes.set_yticklabels(names, parse_math=False)
    if len(labels) <= 30:  # with more labels the numbers would be too small to read
        for row, column in np.ndindex(matrix.shape):
            shade = "white" if share[row, column] > 0.5 else "black"
            count = str(matrix[row, column])
            axes.text(column, row, count, ha="center", va="center", color=shade)
    figure.colorbar(image, label="share of the true class")
    with atomic_path(path) as temporary, catch_warnings():
        # Scripts that the font lacks are drawn as boxes.
        filterwarnings("ignore", "Glyph .* missing from font")
        figure.savefig(temporary, format=Path(path).suffix[1:] or "png", dpi=150)


def shortened(label: str, longest: int = 30) -> str:
    """Cut a label that would take the picture's room."""
    return label if len(label) <= longest else label[: longest - 1] + "…"


def can_draw_clouds() -> bool:
    """Tell whether the library that draws tag clouds is installed."""
    return find_spec("wordcloud") is not None


def draw_cloud(
    phrases: Sequence[Phrase | PhraseTotal],
    *,
    form: Form = "svg",
    place: int | None = None,
    top: int = 24,
) -> bytes:
    """Draw the strongest phrases as a tag cloud, the stronger the larger.

    The same phrases give the same picture.

    Args:
        phrases: with strengths; those at or below zero are left out.
        form: "png" or "svg".
        place: the label's place among the model's, for its colour; grey if None.
        top: the largest number of phrases drawn.
    """
    check_form(form)
    sizes: dict[str, float] = {}
    for phrase in phrases:
        words = " ".join(phrase.text.split())
        if phrase.strength > 0 and words:
            sizes[words] = max(sizes.get(words, 0), phrase.strength)
    if not sizes:
        raise DataError(
            "phrases must hold one that speaks for the label; got none with a "
            "strength above zero."
        )
    colour = LIGHT.soft if place is None else LIGHT.labels[label_style(place)[0]]
    cloud = lay_out(sizes, colour, top, background=None if form == "svg" else "white")
    if form == "svg":
        svg = with_lengths(cloud.to_svg()).replace('style="fill:', 'style="fill: ')
        width, height = CLOUD_SIZE
        box = f'viewBox="0 0 {width} {height}" role="img" xmlns='
        return with_dark_mode(svg.replace("xmlns=", box, 1)).encode()
    buffer = io.BytesIO()
    cloud.to_image().save(buffer, format="png")
    return buffer.getvalue()


def with_lengths(svg: str) -> str:
    """Return a cloud in which each phrase is as wide as it was laid out.

    Readers' fonts are wider or narrower than the one that the layout knows, and phrases
    would touch.
    """

    def add_length(found: re.Match[str]) -> str:
        wide = text_font(int(found["size"])).getlength(unescape(found["words"]))
        length = f' textLength="{wide:.0f}" lengthAdjust="spacingAndGlyphs"'
        return f"{found['tag']}{length}>{found['words']}</text>"

    tag = r'(?P<tag><text [^>]*font-size="(?P<size>\d+)"[^>]*)'
    return re.sub(rf"{tag}>(?P<words>[^<]*)</text>", add_length, svg)


@cache
def text_font(size: int, *, bold: bool = False) -> "FreeTypeFont":
    """Return the font of clouds and slides in a size in pixels."""
    from PIL import ImageFont

    return ImageFont.truetype(str(font_file(bold=bold)), size)


def font_file(*, bold: bool = False) -> Path:
    """Return the file of a font that is always there: it comes with matplotlib."""
    import matplotlib

    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    return Path(matplotlib.get_data_path()) / "fonts" / "ttf" / name


def lay_out(
    sizes: dict[str, float], colour: str, top: int, background: str | None
) -> Any:
    """Return the library's cloud, every phrase in one colour and horizontal."""
    try:
        from wordcloud import WordCloud
    except ImportError as error:
        raise ConfigError(
            "wordcloud must be installed to draw tag clouds; got none. Run "
            "`pip install 'textcapsules[explain]'`."
        ) from error
    width, height = CLOUD_SIZE
    settings: Any = {  # the library's types are narrower than what it takes
        "width": width,
        "height": height,
        "font_path": str(font_file()),
        "background_color": background,
        "mode": "RGB" if background else "RGBA",
        "prefer_horizontal": 1.0,
        "max_words": top,
        "min_font_size": 12,
        "max_font_size": 32,
        "relative_scaling": 0.6,
        "margin": 9,  # phrases would touch otherwise, the more so in other fonts
        "scale": 2 if background else 1,
        "color_func": lambda *_, **__: colour,
        "random_state": 0,
    }
    return WordCloud(**settings).generate_from_frequencies(sizes)
