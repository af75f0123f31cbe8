"""Pages of explained texts: whole, accessible, escaped, and nothing from elsewhere."""

import re
from dataclasses import replace

import numpy as np
import pytest

from pages import NASTY, Page, check_page
from textcapsules.draw.pages import phrase_matrix, render_explanations, shade_cells
from textcapsules.model.classifier import TextClassifier
from textcapsules.reasons.explanation import (
    ORPHAN,
    Explanation,
    LabelExplanation,
    Phrase,
    TokenSpan,
    Trial,
)
from textcapsules.reasons.routing_inspection import Connections
from textcapsules.reasons.texts import explain
from toy import trained_model


def explained(text: str, label: str = "label") -> Explanation:
    """Two labels whose phrases overlap in a text of three tokens: a, ab and b."""
    third = max(len(text) // 3, 1)
    tokens = tuple(
        TokenSpan(text[start : start + third], start, start + third)
        for start in (0, third, 2 * third)
    )
    wide = Phrase(text[: 2 * third], 0, 2 * third, 0.6, 2)
    late = Phrase(text[third:], third, len(text), 0.3, 2)
    labels = (
        LabelExplanation(label, 0.9, True, (wide,), (0.5, 0.1, -0.2)),
        LabelExplanation("other", 0.8, True, (late,), (0.0, 0.2, 0.1)),
    )
    return Explanation(
        text, tokens, labels, None, 0.1, 0.2, (label, "other"), (label,), "couplings"
    )


@pytest.mark.parametrize("text", ["charged twice and crashed", *NASTY])
def test_any_text_is_shown_as_itself(text: str) -> None:
    page = Page(render_explanations([explained(text, text)], title=text, lead=text))
    plain = Page(render_explanations([explained("charged twice", "x")]))
    assert page.names() == plain.names()  # nothing became markup
    assert page.inside("p", "text") == [text]
    assert page.inside("h1") == page.inside("title") == [text]
    assert page.inside("p", "lead") == [text]
    assert text in page.inside("bdi")


@pytest.mark.parametrize("text", ["charged twice and crashed", *NASTY])
def test_a_notebook_shows_the_highlighted_text_escaped(text: str) -> None:
    shown = explained(text, text)._repr_html_()
    part, plain = Page(shown), Page(explained("charged twice", "x")._repr_html_())
    assert part.names() == plain.names()  # nothing became markup
    assert part.inside("p", "text") == [text]
    assert part.inside("b") == [text, "other"]
    assert not re.search(r"https?:|src=|@import|url\(", shown.replace(text, ""))


def test_a_notebook_keeps_its_own_style() -> None:
    (style,) = Page(explained("charged twice")._repr_html_()).inside("style")
    depth, outside = 0, ""
    for sign in style:  # what stands outside of braces are the selectors
        depth += (sign == "{") - (sign == "}")
        outside += sign if depth == 0 and sign != "}" else ""
    assert depth == 0
    assert outside.split() == [
        ".textcapsules",
        *["@media", "screen", "and", "(prefers-color-scheme:", "dark)"],
    ]


def test_an_explanation_is_a_page_by_itself() -> None:
    explanation = explained("charged twice")
    assert explanation.to_html() == render_explanations([explanation])


def test_page_is_whole_and_accessible() -> None:
    check_page(render_explanations([explained("charged twice")]))
    check_page(render_explanations([explained("one"), explained("two")]))
    check_page(render_explanations([]))


def test_overlap_is_marked_for_both_labels_and_each_ends_with_its_tag() -> None:
    text = "aaabbbccc"
    page = render_explanations([explained(text)])
    (shown,) = re.findall(r'<p class="text" dir="auto">(.*?)</p>', page)
    marked = re.sub(r'class="c(\d) (\w+) lane(\d)( t\d)?"', r"\1\2\3", shown)
    assert marked == (
        "<mark 0solid0>aaa</mark>"
        '<mark 1solid1><mark 0solid0 data-n="LA">bbb</mark></mark>'
        '<mark 1solid1 data-n="OT">ccc</mark>'
    )
    assert re.findall(r" t\d", shown) == [" t3", " t3", " t3"]


def test_labels_are_listed_with_score_verdict_and_phrases() -> None:
    page = Page(render_explanations([explained("aaabbbccc")]))
    listed = [" ".join(text.split()) for text in page.inside("ul", "spoke")]
    assert listed == [
        "LAlabel 0.90 right from “aaabbb” 0.60 OTother 0.80 wrong from “bbbccc” 0.30"
    ]


def test_phrase_matrix_has_the_numbers_of_the_text_and_no_others() -> None:
    explanation = explained("aaabbbccc")
    phrases, labels, strengths = phrase_matrix(explanation)
    assert phrases == ["aaabbb", "bbbccc"]
    assert labels == ["label", "other"]
    np.testing.assert_array_equal(strengths, [[0.6, np.nan], [np.nan, 0.3]])
    trials = (Trial(0, 6, (0.6, 0.2)), Trial(3, 9, (-0.1, 0.3)))
    _, _, tried = phrase_matrix(replace(explanation, trials=trials))
    np.testing.assert_array_equal(tried, [[0.6, 0.2], [-0.1, 0.3]])


def test_matrix_and_text_write_a_strength_alike() -> None:
    trials = (Trial(0, 6, (0.6, 0.01)), Trial(3, 9, (-0.1, 0.3)))
    page = Page(render_explanations([replace(explained("aaabbbccc"), trials=trials)]))
    cells = [cell for cell in page.inside("td") if cell]
    assert cells == ["0.60", "0.01", "-0.10", "0.30"]
    assert {"0.60", "0.30"} <= set(page.inside("span", "score"))


def test_cells_are_shaded_from_nothing_to_the_strongest() -> None:
    cells = shade_cells(["r"], ["a", "b", "c"], np.array([[-1.0, 1.0, 4.0]]))
    assert [cell.shade for cell in cells.rows[0].cells] == [0, 0.25, 1]
    assert [cell.text for cell in cells.rows[0].cells] == ["-1.00", "1.00", "4.00"]
    counts = shade_cells(["r"], ["a"], np.array([[7]]), shades=np.array([[0.5]]))
    assert counts.rows[0].cells[0] == ("7", 0.5)
    gaps = shade_cells(["r"], ["a", "b"], np.array([[np.nan, 2.0]]))
    assert gaps.rows[0].cells == [("", 0), ("2.00", 1)]
    zeros = shade_cells(["r"], ["a", "b"], np.array([[0, 2]]), blank=0)
    assert zeros.rows[0].cells == [("", 0), ("2", 1)]
    nothing = shade_cells(["r"], ["a"], np.array([[-1.0]]))
    assert nothing.rows[0].cells[0].shade == 0


def test_one_text_alone_gets_its_matrix_and_histograms() -> None:
    text = "charged twice"
    found = Connections(text, ("a", "b"), {"label": (0, 1), ORPHAN: (1, 0)}, {})
    one, two = (
        check_page(render_explanations([explained(text)] * n, connections=found))
        for n in (1, 2)
    )
    (image,) = one.all("img")
    assert image["alt"].endswith("Shown: label, background.")
    assert one.names().count("table") == 1
    assert not {"img", "table"} & set(two.names())


def test_texts_of_a_real_model() -> None:
    classifier = TextClassifier.load(trained_model(), "cpu")
    texts = ["the cat and kitten purr", "", "zzz", "dog " * 500, "a\ud800b cat"]
    page = Page(render_explanations(explain(classifier, texts)))
    shown = page.inside("p", "text")
    assert shown[:4] == texts[:4]
    assert shown[4] == "a\ufffdb cat"  # what cannot be written is replaced
    assert "No label." in page.inside("p", "note")
    check_page(render_explanations(explain(classifier, texts[:1])))
