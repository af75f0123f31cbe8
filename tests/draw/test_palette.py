"""Colours against WCAG's contrast and a published model of colour blindness."""

import itertools
from collections.abc import Iterable

import numpy as np
import pytest

from textcapsules.draw.pages import HEAT
from textcapsules.draw.palette import (
    DARK,
    LIGHT,
    LINES,
    N_COLOURS,
    SET_SIZE,
    TINTS,
    Theme,
    label_style,
    label_tags,
)
from textcapsules.draw.pictures import colours

THEMES = pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])

# Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB.
BLINDNESS = {
    "none": np.eye(3),
    "protanopia": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "deuteranopia": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
    "tritanopia": np.array(
        [
            [1.255528, -0.076749, -0.178779],
            [-0.078411, 0.930809, 0.147602],
            [0.004733, 0.691367, 0.303900],
        ]
    ),
}


def linear(colour: str | np.ndarray) -> np.ndarray:
    if isinstance(colour, str):
        colour = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(
        colour <= 0.04045, colour / 12.92, ((colour + 0.055) / 1.055) ** 2.4
    )


def contrast(one: str | np.ndarray, other: str | np.ndarray) -> float:
    """WCAG 2.2: (L1 + 0.05) / (L2 + 0.05) with relative luminances."""
    weights = np.array([0.2126, 0.7152, 0.0722])
    dark, light = sorted(float(linear(colour) @ weights) for colour in (one, other))
    return (light + 0.05) / (dark + 0.05)


def mixed(colour: str, percentage: float, paper: str) -> np.ndarray:
    """CSS's color-mix(in srgb, colour percentage%, paper)."""
    one, other = (
        np.array([int(c[i : i + 2], 16) for i in (1, 3, 5)]) / 255
        for c in (colour, paper)
    )
    return percentage / 100 * one + (1 - percentage / 100) * other


def oklab(rgb: np.ndarray) -> np.ndarray:
    """Ottosson (2020): a space in which distances are about as they are seen."""
    to_cones = [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
    to_lab = [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
    return np.array(to_lab) @ np.cbrt(np.array(to_cones) @ np.clip(rgb, 0, 1))


def test_contrast_is_as_the_standard_has_it() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005)


@THEMES
def test_text_can_be_read_on_whatever_is_behind_it(theme: Theme) -> None:
    for paper in (theme.paper, theme.panel):
        assert contrast(theme.ink, paper) >= 7
        assert contrast(theme.soft, paper) >= 4.5
    texts = (theme.accent, theme.right, theme.wrong, *theme.labels)
    assert min(contrast(text, theme.paper) for text in texts) >= 4.5
    for colour, tint in itertools.product(theme.labels, TINTS):
        behind = mixed(colour, tint, theme.paper)
        assert contrast(theme.ink, behind) >= 7
        assert contrast(colour, behind) >= 3  # the line under a phrase
    for percentage in range(HEAT + 1):
        behind = mixed(theme.accent, percentage, theme.paper)
        assert contrast(theme.ink, behind) >= 4.5


def least_distance(colours: Iterable[str], eyes: str) -> float:
    seen = [oklab(BLINDNESS[eyes] @ linear(colour)) for colour in colours]
    pairs = itertools.combinations(seen, 2)
    return min(float(np.linalg.norm(one - other)) for one, other in pairs)


@THEMES
@pytest.mark.parametrize("eyes", BLINDNESS)
def test_labels_of_one_line_are_told_apart_by_all_eyes(theme: Theme, eyes: str) -> None:
    for first in range(0, N_COLOURS, SET_SIZE):
        colours = theme.labels[first : first + SET_SIZE]
        assert least_distance(colours, eyes) > 0.055  # about 0.02 can just be seen


@THEMES
def test_all_labels_are_told_apart_by_most_eyes(theme: Theme) -> None:
    assert least_distance(theme.labels, "none") > 0.055


def test_every_colour_has_one_counterpart_in_the_dark() -> None:
    light, dark = list(colours(LIGHT)), list(colours(DARK))
    assert len(light) == len(dark) == 8 + N_COLOURS == 8 + 14
    assert len(set(light)) == len(light)  # else a picture could not be translated


def test_styles_repeat_only_after_every_colour_had_every_line() -> None:
    styles = [label_style(place) for place in range(N_COLOURS * len(LINES))]
    assert len(set(styles)) == len(styles)
    assert {line for _, line in styles[:SET_SIZE]} == {"solid"}
    assert {line for _, line in styles[SET_SIZE:N_COLOURS]} == {"dashed"}
    assert label_style(len(styles)) == styles[0]


def test_tags_are_short_and_no_two_are_the_same() -> None:
    names = ["a", "a b", "ab", "AB", "a-b", "a1", "", "?", "été", "日本", "_", "ß"]
    for some in (names, ["same"] * 120, [f"label {n}" for n in range(99)]):
        tags = label_tags(some)
        assert len(set(tags)) == len(tags) == len(some)
        assert all(1 <= len(tag) <= 4 for tag in tags)
    assert label_tags(["crash", "cancellation"]) == ("CR", "CA")
