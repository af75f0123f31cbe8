"""Tag clouds: the phrases of one label, the stronger the larger."""

import io
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from textcapsules.errors import ConfigError, DataError
from textcapsules.explain.drawing import Form, check_form, with_dark_mode
from textcapsules.explain.palette import LIGHT, label_style
from textcapsules.explain.types import Phrase, Spoken

__all__ = ["can_draw_clouds", "draw_cloud"]

SIZE = (400, 220)


def can_draw_clouds() -> bool:
    """Tell whether the library that lays clouds out is installed."""
    return find_spec("wordcloud") is not None


def draw_cloud(
    phrases: Sequence[Phrase | Spoken],
    *,
    form: Form = "svg",
    place: int | None = None,
    top: int = 24,
) -> bytes:
    """Draw the strongest phrases as a cloud; the same ones give the same picture.

    Args:
        phrases: with strengths; those at or below zero are left out.
        form: "png" or "svg".
        place: the label's place among the model's, for its colour; grey for none.
        top: how many are drawn at most.
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
        svg = cloud.to_svg().replace('style="fill:', 'style="fill: ')
        width, height = SIZE
        box = f'viewBox="0 0 {width} {height}" role="img" xmlns='
        return with_dark_mode(svg.replace("xmlns=", box, 1)).encode()
    buffer = io.BytesIO()
    cloud.to_image().save(buffer, format="png")
    return buffer.getvalue()


def lay_out(
    sizes: dict[str, float], colour: str, top: int, background: str | None
) -> Any:
    """Return the library's cloud, every phrase in one colour and upright."""
    try:
        from wordcloud import WordCloud
    except ImportError as error:
        raise ConfigError(
            "wordcloud must be installed to draw tag clouds; got none. Run "
            "`pip install 'textcapsules[explain]'`."
        ) from error
    import matplotlib

    width, height = SIZE
    font = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf"
    settings: Any = {  # the library's types are narrower than what it takes
        "width": width,
        "height": height,
        "font_path": str(font),
        "background_color": background,
        "mode": "RGB" if background else "RGBA",
        "prefer_horizontal": 1.0,
        "max_words": top,
        "min_font_size": 12,
        "max_font_size": 32,
        "relative_scaling": 0.6,
        "margin": 9,  # letters interlock otherwise, the more so in other fonts
        "scale": 2 if background else 1,
        "color_func": lambda *_, **__: colour,
        "random_state": 0,
    }
    return WordCloud(**settings).generate_from_frequencies(sizes)
