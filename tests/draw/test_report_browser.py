"""The report and explained texts in Chromium: wide and narrow, light and dark."""

from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from browser_driver import DESKTOP, PHONE, complaints, overflow, set_view
from pages import NASTY
from textcapsules.data.example import Example
from textcapsules.draw.pages import render_explanations
from textcapsules.draw.report import render_report
from textcapsules.inference.report import make_report, training_corpus
from textcapsules.model.classifier import TextClassifier
from textcapsules.reasons.texts import explain
from toy import toy_rows, trained_model

pytestmark = pytest.mark.slow

VIEWS = [(DESKTOP, False), (DESKTOP, True), (PHONE, False), (PHONE, True)]
IDS = ["desktop", "desktop dark", "phone", "phone dark"]

# Every text's contrast with what is behind it, as WCAG 2.2 computes it.
CONTRAST = """
const often = {willReadFrequently: true};
const canvas = document.createElement("canvas").getContext("2d", often);
const rgba = colour => {
  canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
  return [...canvas.getImageData(0, 0, 1, 1).data];
};
const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
  .map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
  .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
const found = {};
const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walk.nextNode()) {
  if (!walk.currentNode.data.trim()) continue;
  let node = walk.currentNode.parentElement;
  const ink = getComputedStyle(node).color;
  let paper = [0, 0, 0, 0];
  for (; node && paper[3] < 255; node = node.parentElement)
    paper = rgba(getComputedStyle(node).backgroundColor);
  const [dark, bright] = [light(rgba(ink)), light(paper)].sort((a, b) => a - b);
  found[ink + " on " + paper] = (bright + .05) / (dark + .05);
}
return found;
"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Write a report and a page of nasty texts; return their addresses."""
    classifier = TextClassifier.load(trained_model(), "cpu")
    nasty = [f"{text} cat purr kitten" for text in NASTY]
    examples = [Example(text, (label,)) for text, label in toy_rows(30, seed=5)]
    examples += [Example(text, ("dogs",)) for text in nasty]
    corpus, _ = training_corpus(classifier)
    report = make_report(
        classifier, examples, source=NASTY[0], title="Toys", n_sampled=6, corpus=corpus
    )
    folder: Path = tmp_path_factory.mktemp("pages")
    texts = explain(classifier, [*nasty, "word" * 200, "dog\n\nbark"])
    written = {
        "report": render_report(report),
        "texts": render_explanations(texts, title=NASTY[0]),
        "one": render_explanations(texts[:1]),
    }
    for name, page in written.items():
        (folder / f"{name}.html").write_text(page, encoding="utf-8")
    return {name: (folder / f"{name}.html").as_uri() for name in written}


def count(driver: Any, selector: str) -> int:
    return driver.execute_script(
        "return document.querySelectorAll(arguments[0]).length", selector
    )


@pytest.mark.parametrize("name", ["report", "texts", "one"])
@pytest.mark.parametrize(("size", "dark"), VIEWS, ids=IDS)
def test_page_fits_is_readable_and_silent(
    browser: Any, pages: dict[str, str], name: str, size: tuple[int, int], dark: bool
) -> None:
    set_view(browser, size, dark=dark)
    browser.get(pages[name])
    assert overflow(browser) <= 0
    assert complaints(browser) == []
    contrasts = browser.execute_script(CONTRAST)
    assert len(contrasts) >= 5
    assert {pair: ratio for pair, ratio in contrasts.items() if ratio < 4.5} == {}
    paper = browser.execute_script(
        "return getComputedStyle(document.body).backgroundColor"
    )
    assert paper == ("rgb(21, 24, 29)" if dark else "rgb(255, 255, 255)")


def test_report_shows_highlights_clouds_and_figures(
    browser: Any, pages: dict[str, str]
) -> None:
    set_view(browser, DESKTOP)
    browser.get(pages["report"])
    assert count(browser, "p.text mark") > 5
    assert count(browser, "#labels ~ ul .cloud li") >= 3
    assert count(browser, "#scores ~ figure img") == 1
    assert count(browser, "#inside ~ .pair img") == 2
    assert count(browser, "#faithfulness ~ .pair img") == 2
    assert count(browser, "table.cells td") > 9
    sizes = browser.execute_script(
        "return [...document.images].map(i => [i.complete, i.naturalWidth])"
    )
    assert sizes
    assert all(done and width > 100 for done, width in sizes)
    lines = browser.execute_script(
        "return [...document.querySelectorAll('p.text mark')]"
        ".map(m => getComputedStyle(m).textDecorationLine)"
    )
    assert set(lines) == {"underline"}


@pytest.mark.parametrize("size", [DESKTOP, PHONE, (280, 600)])
def test_phrases_of_a_cloud_do_not_touch(
    browser: Any, pages: dict[str, str], size: tuple[int, int]
) -> None:
    set_view(browser, size)
    browser.get(pages["report"])
    clouds = browser.execute_script(
        "return [...document.querySelectorAll('.cloud')].map(cloud => "
        "[...cloud.children].map(item => { const box = item.getBoundingClientRect();"
        " return [box.left, box.right, box.top, box.bottom]; }))"
    )
    assert len(clouds) >= 3
    for boxes in clouds:
        for one, other in combinations(boxes, 2):
            beside = one[1] <= other[0] or other[1] <= one[0]
            assert beside or one[3] <= other[2] or other[3] <= one[2]


def test_every_text_is_itself_in_the_browser(
    browser: Any, pages: dict[str, str]
) -> None:
    set_view(browser, PHONE)
    browser.get(pages["texts"])
    shown = browser.execute_script(
        "return [...document.querySelectorAll('p.text')].map(p => p.textContent)"
    )
    assert shown[: len(NASTY)] == [f"{text} cat purr kitten" for text in NASTY]
    assert browser.title == NASTY[0]
    assert count(browser, "body script") == 0
    directions = browser.execute_script(
        "return [...document.querySelectorAll('p.text')].map(p => p.dir)"
    )
    assert set(directions) == {"auto"}


def test_wide_tables_scroll_inside_their_box(
    browser: Any, pages: dict[str, str]
) -> None:
    set_view(browser, (280, 600))
    browser.get(pages["report"])
    assert overflow(browser) <= 0
    scrolling = browser.execute_script(
        "return [...document.querySelectorAll('.scroll')]"
        ".filter(b => b.scrollWidth > b.clientWidth).length"
    )
    assert scrolling > 0


def test_links_lead_to_their_sections_and_focus_is_seen(
    browser: Any, pages: dict[str, str]
) -> None:
    from selenium.webdriver.common.keys import Keys

    set_view(browser, DESKTOP)
    browser.get(pages["report"])
    browser.find_element("tag name", "body").send_keys(Keys.TAB)
    active = browser.switch_to.active_element
    assert active.get_attribute("class") == "skip"
    assert active.rect["x"] >= 0  # out of sight until it has the focus
    assert active.value_of_css_property("outline-style") == "solid"
    for link in browser.find_elements("css selector", "nav a"):
        target = link.get_attribute("href").split("#")[1]
        assert browser.find_element("id", target).tag_name == "h2"


def test_paper_has_no_navigation_fits_and_prints_light(
    browser: Any, pages: dict[str, str]
) -> None:
    set_view(browser, (700, 1000), dark=True)  # about A4 without its margins
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia",
        {
            "media": "print",
            "features": [{"name": "prefers-color-scheme", "value": "dark"}],
        },
    )
    browser.get(pages["report"])
    shown = browser.execute_script(
        "return [getComputedStyle(document.querySelector('nav')).display,"
        " getComputedStyle(document.body).backgroundColor,"
        " getComputedStyle(document.querySelector('.scroll')).overflowX]"
    )
    assert shown == ["none", "rgb(255, 255, 255)", "visible"]
    assert overflow(browser) <= 0
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
