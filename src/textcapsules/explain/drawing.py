"""What all figures share: their look, and how they become PNG or SVG bytes.

An SVG is drawn in the light colours and carries a style that swaps each for its dark
one where the reader prefers that. Its letters stay letters, set in the reader's fonts,
so any script the reader has can be read.
"""

import io
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal
from warnings import catch_warnings, filterwarnings

from textcapsules.errors import ConfigError
from textcapsules.explain.palette import DARK, LIGHT, Theme

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Form", "check_form", "figure_bytes", "new_axes", "with_dark_mode"]

Form = Literal["png", "svg"]
DOTS_PER_INCH = 160
FONTS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"


def check_form(form: str) -> None:
    """Refuse a form that pictures do not come in."""
    if form not in ("png", "svg"):
        raise ConfigError(f"form must be png or svg; got {form!r}.")


def new_axes(
    width: float, height: float, *, rows: int = 1
) -> tuple["Figure", list["Axes"]]:
    """Return a figure, in inches, and its quiet axes, with common scales."""
    from matplotlib.figure import Figure  # no pyplot: no global state, no display

    figure = Figure(figsize=(width, height), layout="constrained")
    every = list(figure.subplots(rows, squeeze=False, sharex=True, sharey=True).flat)
    for axes in every:
        axes.set_facecolor("none")
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["bottom", "left"]].set_color(LIGHT.rule)
        axes.tick_params(colors=LIGHT.soft, labelsize=9, color=LIGHT.rule)
        for text in (axes.title, axes.xaxis.label, axes.yaxis.label):
            text.set(color=LIGHT.soft, fontsize=9.5)
    return figure, every


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
    """Return an SVG in light colours with a style for the dark."""
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
