"""Pictures: real files of their form that show the values they were given."""

import re
from itertools import combinations
from xml.etree import ElementTree

import numpy as np
import pytest

from textcapsules.base.errors import ConfigError, DataError
from textcapsules.draw import pictures
from textcapsules.draw.palette import DARK, LIGHT
from textcapsules.draw.pictures import (
    draw_cloud,
    draw_convergence,
    draw_curves,
    draw_dev_scores,
    draw_faithfulness,
    draw_heat_map,
    draw_histograms,
    draw_loss,
    draw_reliability,
    draw_scaling,
    with_dark_mode,
)
from textcapsules.reasons.explanation import (
    Faithfulness,
    MethodCurves,
    Phrase,
    PhraseTotal,
)

NASTY = [
    "<script>alert(1)</script>",
    "5 $ & 6 $",
    "\u202eleft",
    "👩‍🚀🎉",
    "退款",
    "a\nb",
]
EPOCHS = [
    {"epoch": n, "loss": 1 / n, "dev_accuracy": 1 - 1 / n, "dev_score": 0.5}
    for n in (1, 2, 3)
]
FOUND = Faithfulness(
    4,
    5,
    (0.0, 0.5, 1.0),
    tuple(
        MethodCurves(name, (1, 0.5, 0), (0, 0.5, 1), 0.5, 0.1, 0.5, 0.1)
        for name in ("couplings", "random")
    ),
    "couplings",
    "Couplings win.",
)


def cloud(form: str) -> bytes:
    phrases = [PhraseTotal(text, 1.0 + n, 1) for n, text in enumerate(NASTY)]
    return draw_cloud(phrases, form=form, place=1)  # type: ignore[arg-type]


PICTURES = {
    "histograms": lambda form: draw_histograms(
        {name: [0.1, 0.5] for name in NASTY}, NASTY[:2], form=form
    ),
    "heat map": lambda form: draw_heat_map(
        NASTY, NASTY[:2], np.arange(12).reshape(6, 2) - 3, form=form
    ),
    "convergence": lambda form: draw_convergence([0.1, 0.6], [1, 0.4], form=form),
    "loss": lambda form: draw_loss(EPOCHS, form=form),
    "dev scores": lambda form: draw_dev_scores(EPOCHS, form=form),
    "deleted": lambda form: draw_faithfulness(FOUND, "deleted", form=form),
    "kept": lambda form: draw_faithfulness(FOUND, "kept", form=form),
    "cloud": cloud,
    "reliability": lambda form: draw_reliability(
        [0.1, 0.5, 0.9], [0.0, 0.6, 1.0], [90, 1, 30], thresholds=(0.4, 0.6), form=form
    ),
}


def drawn(svg: bytes) -> ElementTree.Element:
    root = ElementTree.fromstring(svg.decode())
    assert root.tag.endswith("}svg")
    return root


def words(svg: bytes) -> list[str]:
    """Return the texts of an SVG, as a reader sees them."""
    nodes = [node for node in drawn(svg).iter() if node.tag.endswith("}text")]
    return [re.sub(r"\s+", " ", "".join(node.itertext())).strip() for node in nodes]


def filled(svg: bytes, colour: str) -> list[ElementTree.Element]:
    return [
        node for node in drawn(svg).iter() if f"fill: {colour}" in node.get("style", "")
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", PICTURES)
def test_pictures_are_png_and_svg_without_scripts(name: str) -> None:
    png, svg = PICTURES[name]("png"), PICTURES[name]("svg")
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    tags = {node.tag.split("}")[-1] for node in drawn(svg).iter()}
    assert "script" not in tags
    assert b"prefers-color-scheme:dark" in svg


@pytest.mark.slow
@pytest.mark.parametrize("name", PICTURES)
def test_the_same_values_give_the_same_bytes(name: str) -> None:
    assert PICTURES[name]("svg") == PICTURES[name]("svg")


@pytest.mark.parametrize("name", ["histograms", "cloud"])
def test_other_forms_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="form must be png or svg; got 'gif'"):
        PICTURES[name]("gif")


def test_dark_mode_swaps_every_colour_of_the_figures() -> None:
    svg = draw_loss(EPOCHS).decode()
    used = set(re.findall(r"(?:fill|stroke): (#[0-9a-f]{6})", svg.split("<style>")[0]))
    swapped = dict(re.findall(r'\[style\*="fill: (#\w+)"\]\{fill:(#\w+)', svg))
    assert used - {"#ffffff"} <= set(swapped)
    assert swapped[LIGHT.ink] == DARK.ink
    assert swapped[LIGHT.labels[0]] == DARK.labels[0]


def test_dark_mode_leaves_the_picture_itself_alone() -> None:
    styled = with_dark_mode("<svg><g/></svg>")
    assert styled.startswith("<svg><g/><style>")
    assert styled.endswith("</style></svg>\n")


def test_histograms_have_a_panel_a_category_and_bars_in_proportion() -> None:
    svg = draw_histograms({"billing": [0.0, 1.0, 0.5], "crash": [0.25, 0, 0]})
    assert {"billing", "crash"} <= set(words(svg))
    heights = []
    for node in filled(svg, LIGHT.labels[0]):
        numbers = re.findall(r"-?\d+\.?\d*", node.get("d", ""))
        if numbers:
            ys = [float(y) for y in numbers[1::2]]
            heights.append(max(ys) - min(ys))
    assert len(heights) == 3
    assert heights[0] == pytest.approx(0)
    assert heights[2] == pytest.approx(heights[1] / 2, rel=1e-3)


def test_histograms_name_their_phrases_where_they_fit() -> None:
    few = draw_histograms({"a": [1.0, 2.0]}, ["charged twice", "the app"])
    assert {"charged twice", "the app"} <= set(words(few))
    many = draw_histograms({"a": [1.0] * 500}, [f"p{n}" for n in range(500)])
    assert not {"p0", "p499"} & set(words(many))
    assert any("order of the text" in text for text in words(many))


@pytest.mark.parametrize("strengths", [{}, {"a": [1.0], "b": [1.0, 2.0]}])
def test_histograms_refuse_what_does_not_fit(strengths: dict) -> None:
    with pytest.raises(DataError, match="strengths must hold categories"):
        draw_histograms(strengths)


def test_heat_map_is_darkest_at_the_strongest_and_blank_below_zero() -> None:
    svg = draw_heat_map(["p", "q"], ["a", "b"], np.array([[4.0, 1.0], [0.0, -2.0]]))
    shades = [
        float(found.group(1)) if found else 1.0
        for node in filled(svg, LIGHT.accent)
        for found in [re.search(r"(?<!-)opacity: ([\d.]+)", node.get("style", ""))]
    ]
    assert shades == [1, 0.25]
    assert {"p", "q", "a", "b"} <= set(words(svg))


def test_heat_map_refuses_a_matrix_of_another_shape() -> None:
    with pytest.raises(DataError, match=r"strengths must be \(1, 2\).*got \(2, 1\)"):
        draw_heat_map(["p"], ["a", "b"], np.zeros((2, 1)))


def test_curves_show_names_and_grey_the_yardstick() -> None:
    svg = draw_faithfulness(FOUND, "kept")
    assert {"couplings", "random"} <= set(words(svg))
    lines = [node.get("style", "") for node in drawn(svg).iter()]
    dotted = [style for style in lines if f"stroke: {LIGHT.soft}" in style]
    assert any("stroke-dasharray" in style for style in dotted)


def test_curves_of_missing_values_and_of_one_point() -> None:
    assert drawn(draw_curves([1, 2], {"a": [np.nan, 0.5]}, "x")) is not None
    assert drawn(draw_loss(EPOCHS[:1])) is not None
    assert drawn(draw_dev_scores([{"epoch": 1, "loss": 0.0}])) is not None


def test_labels_are_not_taken_for_mathematics() -> None:
    svg = draw_histograms({"$x^2$": [1.0]}, ["cost $5 or $6"])
    assert {"$x^2$", "cost $5 or $6"} <= set(words(svg))


def test_cloud_is_larger_for_the_stronger_and_skips_the_rest() -> None:
    phrases = [Phrase("strong one", 0, 1, 9.0, 2), Phrase("weak one", 0, 1, 3.0, 2)]
    against = [Phrase("against", 0, 1, -1.0, 2), Phrase(" ", 0, 1, 5.0, 1)]
    svg = draw_cloud([*phrases, *against])
    assert sorted(words(svg)) == ["strong one", "weak one"]
    sizes = {
        node.text: float(node.get("font-size", 0))
        for node in drawn(svg).iter()
        if node.tag.endswith("}text")
    }
    assert sizes["strong one"] > sizes["weak one"]


def test_cloud_shows_any_text_as_itself() -> None:
    shown = words(cloud("svg"))
    for text in ("<script>alert(1)</script>", "5 $ & 6 $", "退款", "a b"):
        assert text in shown


def test_cloud_takes_the_label_s_colour_or_grey() -> None:
    phrases = [PhraseTotal("word", 1.0, 1)]
    assert filled(draw_cloud(phrases, place=15), LIGHT.labels[1])
    assert filled(draw_cloud(phrases), LIGHT.soft)


def test_cloud_of_nothing_is_refused() -> None:
    with pytest.raises(DataError, match="phrases must hold one that speaks"):
        draw_cloud([PhraseTotal("x", 0.0, 1)])


def test_cloud_without_its_library_says_what_to_install(monkeypatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "wordcloud", None)
    with pytest.raises(ConfigError, match=r"pip install 'textcapsules\[explain\]'"):
        draw_cloud([PhraseTotal("x", 1.0, 1)])
    monkeypatch.setattr(pictures, "find_spec", lambda name: None)
    assert not pictures.can_draw_clouds()


def test_phrases_across_lines_are_named_on_one() -> None:
    broken, whole = ["a\n  b", "b c"], ["a b", "b c"]
    strengths = {"red": [0.2, 0.1]}
    assert draw_histograms(strengths, broken) == draw_histograms(strengths, whole)
    values = np.array([[0.2], [0.1]])
    heat = [draw_heat_map(phrases, ["red"], values) for phrases in (broken, whole)]
    assert heat[0] == heat[1]


def test_phrases_of_a_cloud_are_as_wide_as_they_were_laid_out() -> None:
    phrases = [PhraseTotal(text, 9.0 - n, 1) for n, text in enumerate(NASTY)]
    boxes = []
    for node in drawn(draw_cloud(phrases)).iter():
        if not node.tag.endswith("}text"):
            continue
        place = re.findall(r"-?[\d.]+", node.get("transform", ""))
        x, y = (float(number) for number in place)
        size, wide = float(node.get("font-size", 0)), float(node.get("textLength", 0))
        assert node.get("lengthAdjust") == "spacingAndGlyphs"
        assert wide > 0
        # A layout knows the letters' own heights, at most 0.8 of their size.
        boxes.append((x, x + wide, y - 0.75 * size, y))
    for one, other in combinations(boxes, 2):
        apart = one[1] <= other[0] or other[1] <= one[0]
        assert apart or one[3] <= other[2] or other[3] <= one[2], (one, other)


def test_reliability_lies_where_the_figures_say() -> None:
    """Points are drawn at (score, share), on axes from 0 to 1."""
    svg = draw_reliability([0.0, 0.5, 1.0], [0.0, 0.25, 1.0], [10, 10, 10])
    points = []
    for node in filled(svg, LIGHT.accent):  # circles, drawn from their lowest points
        x, y = (float(number) for number in node.get("d", "").split()[1:3])
        points.append((x, y))
    assert len(points) == 3
    (x0, y0), (x1, y1), (x2, y2) = points
    assert x1 == pytest.approx((x0 + x2) / 2, abs=0.01)
    assert (y0 - y1) / (y0 - y2) == pytest.approx(0.25, abs=0.001)
    assert {"ideal", "this model"} <= set(words(svg))
    assert "thresholds" not in words(svg)


def scaling_row(grows: str, size: int, way: str, ms: float | str) -> dict:
    column = {"length": "tokens"}.get(grows, grows)
    sizes = {"batch": 4, "tokens": 60, "classes": 4, "threads": 1}
    return {"grows": grows, **sizes, column: size, "way": way, "ms": ms}


def test_scaling_has_one_line_per_way_and_panel() -> None:
    rows = [
        scaling_row(grows, size, way, size * (3.0 if way == "votes" else 1.0))
        for grows in ("length", "threads")
        for size in (1, 2, 4)
        for way in ("votes", "auto")
    ]
    rows.append(scaling_row("length", 8, "votes", "left out"))
    svg = draw_scaling(rows)
    assert {"tokens per text", "threads", "votes", "kernels"} <= set(words(svg))
    assert not {"without votes", "classes"} & set(words(svg))
    for colour in (LIGHT.labels[0], LIGHT.labels[2]):
        lines = [
            node.get("d", "").split()
            for node in drawn(svg).iter()
            if f"stroke: {colour}" in node.get("style", "")
            and "fill: none" in node.get("style", "")
        ]
        of_points = [line for line in lines if line.count("L") == 2]
        # Three points in each of two panels, none for "left out"; and the legend's.
        assert len(of_points) == 3
    with pytest.raises(DataError, match="rows must hold a time"):
        draw_scaling([scaling_row("length", 8, "votes", "left out")])
