"""The picture of a highlighted text: wrapped, marked in the label's colours, whole."""

import io

import numpy as np
import pytest
from PIL import Image

from pages import NASTY
from textcapsules.draw.pages import highlight
from textcapsules.draw.palette import LIGHT
from textcapsules.draw.slide import EDGE, WIDTH, draw_text, width, wrap
from textcapsules.reasons.explanation import (
    Explanation,
    LabelExplanation,
    Phrase,
)


def explained(text: str, *spans: tuple[int, int]) -> Explanation:
    """One label per span."""
    labels = tuple(
        LabelExplanation(
            f"{text[:5]} {n}", 0.9, True, (Phrase(text[a:b], a, b, 0.5, 1),), ()
        )
        for n, (a, b) in enumerate(spans)
    )
    names = tuple(label.label for label in labels)
    return Explanation(text, (), labels, None, None, None, names, None, "m")


def pixels(explanation: Explanation) -> np.ndarray:
    image = Image.open(io.BytesIO(draw_text(explanation)))
    assert image.format == "PNG"
    assert image.width == WIDTH
    return np.asarray(image.convert("RGB"))


def has_colour(picture: np.ndarray, colour: str) -> bool:
    wanted = [int(colour[at : at + 2], 16) for at in (1, 3, 5)]
    return bool((picture == wanted).all(-1).any())


def test_a_phrase_has_its_label_s_colour() -> None:
    picture = pixels(explained("charged twice and crashed", (0, 13), (18, 25)))
    assert has_colour(picture, LIGHT.labels[0])
    assert has_colour(picture, LIGHT.labels[1])
    assert not has_colour(picture, LIGHT.labels[2])


def test_lines_fit_and_no_word_is_lost() -> None:
    text = "some words of a long text " * 20 + "w" * 300
    found = highlight(explained(text, (0, 40)))
    lines = wrap(found)
    assert len(lines) > 5
    assert all(sum(map(width, line)) <= WIDTH - 2 * EDGE + 40 for line in lines)
    shown = "".join(word.text for line in lines for word in line)
    assert "".join(shown.split()) == "".join(text.split())
    assert pixels(explained(text)).shape[0] > pixels(explained("short")).shape[0]


def test_paragraphs_begin_on_a_line_of_their_own() -> None:
    lines = wrap(highlight(explained("one two\n\nthree")))
    assert ["".join(word.text for word in line) for line in lines] == [
        "one two",
        "three",
    ]


@pytest.mark.parametrize("text", ["", " ", "a\ud800b", "tab\there\x00", *NASTY])
def test_any_text_can_be_drawn(text: str) -> None:
    picture = pixels(explained(text, (0, len(text))))
    assert picture.shape[0] > 2 * EDGE
