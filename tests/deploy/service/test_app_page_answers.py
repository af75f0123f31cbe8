"""The page before a service whose every answer is written here."""

import csv
import json
import re
import shutil
from typing import Any

import pytest

from browser_driver import (
    DESKTOP,
    PHONE,
    complaints,
    missing,
    overflow,
    set_view,
)
from serving import running, toy_service
from textcapsules.deploy.service import app

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing()), reason=missing() or "none"),
]

TEXT = "😀 My card was charged twice. The app crashes, sadly. Best wishes."
ASIDE = "How long should dough rest?"
NAMES = ("billing", "crash", "login")


def phrase(words: str, strength: float, text: str = TEXT) -> dict:
    start = text.index(words)  # in code points, as the service counts
    end = start + len(words)
    return {"text": words, "start": start, "end": end, "strength": strength}


def label(phrases=(), against=(), change=None) -> dict:
    given = {"phrases": list(phrases), "against": list(against), "tokens": []}
    return {**given, "change": change}


def sentence(words: str, **falls: float) -> dict:
    found = phrase(words, 0)
    carried = [{"label": name, "strength": fall} for name, fall in falls.items()]
    return {"start": found["start"], "end": found["end"], "labels": carried}


CHARGED = phrase("charged twice", 0.31)
CRASHES = phrase("app crashes", 0.25)
ANSWER = {
    "labels": ["billing", "crash"],
    "scores": {"billing": 0.9, "crash": 0.7, "login": 0.4},
    "readable": True,
    "known": 10,
    "words": 12,
    "outside": False,
    "explanation": {
        "method": "contributions",
        "tokens": [{"start": 0, "end": 1}],
        "labels": {
            "billing": label(
                [CHARGED, phrase("My card", 0.002)],
                [phrase("sadly", -0.05)],
                {"deleted": [phrase("charged twice", 0)], "score": 0.42},
            ),
            "crash": label([CRASHES], change=None),
            "login": label([phrase("The app", 0.04)], [phrase("twice", -0.2)]),
        },
        "sentences": [
            sentence("😀 My card was charged twice.", billing=0.5, crash=0.01),
            sentence("The app crashes, sadly.", crash=0.4, billing=-0.02),
            sentence("Best wishes.", billing=0.1, crash=0.04),
        ],
        "background": label([phrase("Best wishes", 0.1)]),
        "background_share": 0.2,
        "unclaimed": 0.1,
    },
}
OUTSIDE = {**ANSWER, "labels": [], "outside": True}
MODELS = {
    "models": [
        {
            "name": "demo",
            "task": "multi-label",
            "labels": [{"name": name, "threshold": 0.5} for name in NAMES],
            "explains": True,
            "reads": "words",
            "max_tokens": 400,
            "method": "contributions",
            "methods": ["contributions", "couplings"],
        }
    ],
    "limits": {"texts": 256, "explained": 16, "characters": 20000, "bytes": 2097152},
}
# Answers each call from `canned`, keeps every request, and fails while `isDown`.
DOUBLE = """
window.asked = [];
window.fetch = async (path, options = {}) => {
  const canned = %s;
  const reply = (value, status = 200) =>
    new Response(JSON.stringify(value), { status });
  const request = options.body ? JSON.parse(options.body) : null;
  window.asked.push([path, request]);
  if (window.isDown) throw new TypeError("down");
  if (path === "v1/models") return reply(canned.models);
  if (path !== "v1/predict") return reply({});
  const predictions = request.texts.map((text, n) => {
    const found = structuredClone(canned.answers[text] ?? canned.answers["*"]);
    const digits = text.match(/^row (\\d+)$/);
    if (digits) found.scores.billing = (Number(digits[1]) %% 1000) / 1000;
    if (!request.explain) delete found.explanation;
    else found.explanation.method = request.method ?? "contributions";
    for (const label of Object.values(found.explanation?.labels ?? {})) {
      if (!request.changes) label.change = null;
    }
    return found;
  });
  return reply({ model: "demo", predictions });
};
"""
REVIEW = """export async function mount(element, { api, settings }) {
  await api.get("v1/review/next");
  element.append(`${settings.model.name} ${typeof api.post}`);
}
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Serve the page with a double of its review part."""
    folder = tmp_path_factory.mktemp("site") / "page"
    shutil.copytree(app.PAGE, folder)
    (folder / "review.js").write_text(REVIEW, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(app, "PAGE", folder)
        with running(toy_service()) as client:
            yield str(client.base_url).rstrip("/")


@pytest.fixture
def visit(browser, site):
    """Return a function that opens the page with answers of its own."""
    added = []

    def open_page(text=TEXT, *, review=False, models=MODELS):
        canned: dict[str, Any] = {"models": {**models, "review": review}}
        canned["answers"] = {"*": ANSWER, ASIDE: OUTSIDE}
        source = DOUBLE % json.dumps(canned)
        command = "Page.addScriptToEvaluateOnNewDocument"
        added.append(browser.execute_cdp_cmd(command, {"source": source}))
        browser.get("about:blank")
        complaints(browser)
        browser.get(f"{site}/")
        wait(browser, "return document.querySelector('#texts .work')")
        write(browser, text)
        return browser

    set_view(browser, DESKTOP)
    yield open_page
    for each in added:
        browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", each)
    assert complaints(browser) == []


def wait(driver, script, *args):
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(driver, 30, 0.05).until(
        lambda _: driver.execute_script(script, *args)
    )


def write(driver, text):
    driver.execute_script(
        """const area = document.querySelector('textarea');
        area.value = arguments[0];
        area.dispatchEvent(new Event('input'));""",
        text,
    )
    wait(driver, "return !document.querySelector('#texts [aria-busy]')")


def find(driver, selector):
    return driver.find_element("css selector", selector)


def texts(driver, selector) -> list[str]:
    return driver.execute_script(
        """return [...document.querySelectorAll(arguments[0])].map(
            (e) => e.textContent)""",
        selector,
    )


def strengths(driver, selector) -> list[str]:
    return texts(driver, f"{selector} .phrase .value")


def marks(driver) -> list[str]:
    return texts(driver, ".marked mark:not(:has(mark))")


def press(driver, *keys):
    from selenium.webdriver.common.keys import Keys

    for key in keys:
        driver.switch_to.active_element.send_keys(getattr(Keys, key, key))


def requests(driver, path="v1/predict") -> list[dict]:
    asked = driver.execute_script("return window.asked")
    return [request for name, request in asked if name == path]


def test_reasons_stand_beneath_their_labels_with_a_unit(visit):
    page = visit()
    assert texts(page, ".given .pick .name") == ["billing", "crash"]
    assert texts(page, ".given:first-child .phrase bdi") == [
        *("charged twice", "My card", "sadly")
    ]
    assert strengths(page, ".given:first-child") == ["−0.31", "−<0.01", "+0.05"]
    assert marks(page) == ["charged twice", "app crashes"]
    assert "falls by 0.31 without this phrase" in find(page, ".unit").text
    expected = "the score of billing falls by 0.31 without this phrase"
    assert find(page, ".phrase").accessible_name == f"charged twice : {expected}"
    against = find(page, ".phrase.against").accessible_name
    assert against == "sadly : the score of billing rises by 0.05 without this phrase"


def test_a_phrase_tells_its_labels_by_pointer_focus_and_caret(visit):
    from selenium.webdriver import ActionChains

    page = visit()
    told = "“charged twice”: the score of billing falls by 0.31 without this phrase"
    mark = find(page, ".marked mark")
    box = mark.rect
    actions = ActionChains(page, duration=0)
    actions.move_to_element(mark).perform()  # what is hit is the text area above it
    assert find(page, ".tip").text.endswith(told)
    assert box["width"] > 0
    actions.move_to_element(find(page, "h1")).perform()
    assert not find(page, ".tip").is_displayed()
    page.execute_script("document.querySelector('.phrase').focus()")
    assert find(page, ".tip").text.endswith(told)
    assert texts(page, "mark.lit") == ["charged twice"]
    page.execute_script("document.querySelector('.phrase').blur()")
    area = find(page, "textarea")
    page.execute_script(
        "arguments[0].focus(); arguments[0].setSelectionRange(16, 16)", area
    )
    press(page, "ARROW_RIGHT")
    assert find(page, ".tip").text.endswith(told)
    press(page, "ESCAPE")
    assert not find(page, ".tip").is_displayed()


def test_a_phrase_leads_to_its_place_in_the_text(visit):
    page = visit()
    find(page, ".phrase").click()
    chosen = """const area = document.querySelector('textarea');
        return area.value.slice(area.selectionStart, area.selectionEnd)"""
    assert page.execute_script(chosen) == "charged twice"  # past a pair of surrogates


def test_the_pointer_on_a_label_shows_its_phrases_alone(visit):
    from selenium.webdriver import ActionChains

    page = visit()
    for selector, expected in {
        ".given:nth-child(2)": ["app crashes"],
        ".other-labels .label": ["The app"],
    }.items():
        actions = ActionChains(page, duration=0)
        actions.move_to_element(find(page, f"{selector} .name")).perform()
        assert marks(page) == expected
        actions.move_to_element(find(page, "h1")).perform()
        assert marks(page) == ["charged twice", "app crashes"]


def test_why_not_shows_what_spoke_for_and_against(visit):
    page = visit()
    find(page, ".other-labels .pick").click()
    why = find(page, ".why")
    assert "Its score is 0.40, 0.10 below the threshold of 0.50." in why.text
    assert texts(page, ".why .phrase bdi") == ["The app", "twice"]
    assert strengths(page, ".why") == ["−0.04", "+0.20"]
    assert marks(page) == ["The app"]


def test_what_would_change_a_label_is_asked_for_and_struck_through(visit):
    page = visit()
    assert not any(request.get("changes") for request in requests(page))
    first, second = page.find_elements("css selector", ".change button")
    first.click()
    wait(page, "return document.querySelector('.change del')")
    assert requests(page)[-1]["changes"] is True
    assert texts(page, ".change p") == [
        "Without charged twice the score is 0.42, and billing is no longer given."
    ]
    assert texts(page, ".marked del") == ["charged twice"]
    asked = len(requests(page))
    second = page.find_elements("css selector", ".change button")[1]
    second.click()
    assert texts(page, ".change p") == ["No short deletion takes this label away."]
    assert texts(page, ".marked del") == []
    assert len(requests(page)) == asked  # one request holds all labels
    write(page, TEXT + " Thanks.")
    assert texts(page, ".change p") == []


def test_sentences_carry_labels(visit):
    page = visit()
    carried = texts(page, ".sentences .carries")
    assert carried == ["BIbilling", "CRcrash", "no label"]
    assert texts(page, ".given .change > .hint") == ["In sentence 1.", "In sentence 2."]
    page.find_elements("css selector", ".sentences button")[1].click()
    chosen = """const area = document.querySelector('textarea');
        return area.value.slice(area.selectionStart, area.selectionEnd)"""
    assert page.execute_script(chosen) == "The app crashes, sadly."


def test_the_paper_s_view_is_one_click_away(visit):
    page = visit()
    assert "contributions, what each word adds" in find(page, ".method").text
    find(page, ".method button").click()
    wait(page, "return document.querySelector('.method b').textContent === 'couplings'")
    assert requests(page)[-1]["method"] == "couplings"
    assert "the paper's view" in find(page, ".method").text
    find(page, ".method button").click()
    wait(page, "return document.querySelector('.method b').textContent[1] === 'o'")
    wait(page, "return !document.querySelector('[aria-busy]')")
    assert requests(page)[-1]["method"] == "contributions"


def test_a_change_that_was_shown_goes_away_with_its_answer(visit):
    page = visit()
    find(page, ".change button").click()
    wait(page, "return document.querySelector('.change del')")
    find(page, ".method button").click()
    wait(page, "return document.querySelector('.method b').textContent === 'couplings'")
    wait(page, "return !document.querySelector('[aria-busy]')")
    assert texts(page, ".change p") == []  # and no "Looking…" for ever


def test_what_depends_on_the_threshold_is_asked_anew_when_the_slider_rests(visit):
    page = visit()
    asked = len(requests(page))
    for threshold in ("0.6", "0.5", "0.3"):
        page.execute_script(
            """const slider = document.getElementById('threshold');
            slider.value = arguments[0];
            slider.dispatchEvent(new Event('input'));""",
            threshold,
        )
    assert texts(page, ".given .pick .name") == ["billing", "crash", "login"]
    wait(page, "return window.asked.length > arguments[0]", asked + 1)  # + models
    wait(page, "return !document.querySelector('[aria-busy]')")
    assert [request.get("threshold") for request in requests(page)[asked:]] == [0.3]
    find(page, ".change button").click()
    wait(page, "return document.querySelector('.change del')")
    assert requests(page)[-1]["threshold"] == 0.3


def test_a_text_outside_has_no_label_at_any_threshold(visit):
    page = visit(ASIDE)
    for threshold in ("0", "0.3", "1"):
        page.execute_script(
            """const slider = document.getElementById('threshold');
            slider.value = arguments[0];
            slider.dispatchEvent(new Event('input'));""",
            threshold,
        )
        answer = find(page, ".answer")
        assert answer.get_attribute("data-state") == "outside"
        assert answer.text.startswith("No label: outside my topics")
        assert texts(page, ".given") == marks(page) == []


def test_no_word_of_ours_is_shown(visit):
    page = visit()
    shown = find(page, "body").text.lower()
    assert not re.search(r"orphan|\bleak|votes?\b", shown)
    assert "20 % is background" in shown
    assert "10 % of the text nobody claimed" in shown
    assert texts(page, "#model-name") == ["demo"]


def test_an_error_goes_when_it_is_gone(visit):
    page = visit()
    page.execute_script("window.isDown = true")
    write(page, TEXT + " x")
    assert find(page, "#fault").is_displayed()
    assert "does not answer" in find(page, "#fault").text
    assert find(page, ".answer").get_attribute("data-state") == "fault"
    page.execute_script("window.isDown = false")
    wait(page, "return document.getElementById('fault').hidden")  # by itself
    wait(page, "return document.querySelector('.answer').dataset.state === 'given'")


def test_without_a_review_there_is_no_tab(visit):
    page = visit()
    assert not find(page, "#tab-review").is_displayed()
    assert requests(page, "v1/review/next") == []


def test_tabs_are_reached_by_keys_and_the_review_is_mounted_once(visit):
    page = visit(review=True)
    # Who serves texts to review wants to review them.
    wait(page, "return !document.getElementById('panel-review').hidden")
    page.execute_script("document.getElementById('tab-text').focus()")
    for key, name in [
        ("ARROW_RIGHT", "file"),
        ("END", "review"),
        ("ARROW_RIGHT", "text"),
        ("ARROW_LEFT", "review"),
        ("HOME", "text"),
    ]:
        press(page, key)
        assert page.switch_to.active_element.get_attribute("id") == f"tab-{name}"
        shown = page.find_elements("css selector", "[role=tabpanel]:not([hidden])")
        assert [each.get_attribute("id") for each in shown] == [f"panel-{name}"]
    wait(page, "return document.getElementById('panel-review').textContent")
    assert texts(page, "#panel-review") == ["demo function"]
    assert len(requests(page, "v1/review/next")) == 1


def open_file(page, path, rows):
    with path.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([["id", "text"], *rows])
    find(page, "#tab-file").click()
    find(page, "#file").send_keys(str(path))
    wait(page, "return !document.getElementById('table-options').hidden")
    find(page, "#label-rows").click()
    wait(page, "return !document.getElementById('results').hidden")


def shown_rows(page) -> list[int]:
    return [int(text.replace(",", "")) for text in texts(page, "#rows td:first-child")]


def test_rows_are_counted_filtered_and_sorted(visit, tmp_path):
    page = visit()
    rows = [[n, ASIDE if n == 7 else f"row {n}"] for n in range(3000)]
    open_file(page, tmp_path / "many.csv", rows)
    # billing is given from a score of 0.5 on, crash always, login never
    outside = 1
    billing = sum((n % 1000) / 1000 >= 0.5 for n in range(3000))
    names, values = texts(page, "#chart .name"), texts(page, "#chart .value")
    assert dict(zip(names, values, strict=True)) == {
        "crash": "2,999 100 %",
        "billing": f"{billing:,} 50 %",
        "no label: outside my topics": f"{outside} 0 %",
    }
    assert texts(page, "#totals li")[:2] == ["3,000 rows", "2,999 with a label"]
    assert len(shown_rows(page)) == 25  # however many there are
    page.execute_script(
        """const sort = document.getElementById('sort');
        sort.value = 'low';
        sort.dispatchEvent(new Event('change'));"""
    )
    find(page, "#chart li:nth-child(2) button").click()
    assert find(page, "#rows-title").text == f"{billing:,} rows: billing"
    assert shown_rows(page)[:4] == [501, 1501, 2501, 502]  # by billing's score
    find(page, "#page-after").click()
    assert texts(page, "#page-place") == [f"Page 2 of {-(-billing // 25)}"]
    pressed = page.switch_to.active_element.get_attribute("id")
    assert pressed == "page-after"
    find(page, "#chart li:nth-child(3) button").click()
    assert shown_rows(page) == [8]
    find(page, "#chart li:nth-child(3) button").click()
    assert find(page, "#rows-title").text == "3,000 rows"


def test_a_row_opens_with_its_reasons_and_leads_to_the_next(visit, tmp_path):
    page = visit()
    open_file(page, tmp_path / "few.csv", [[1, TEXT], [2, ASIDE], [3, TEXT + " x"]])
    page.execute_script("document.querySelectorAll('#rows button')[1].focus()")
    press(page, "ENTER")
    wait(page, "return document.querySelector('#row[open] .known')")
    assert find(page, "#row-title").text == "Row 2"
    assert find(page, "#row .answer").text.startswith("No label: outside")
    find(page, "#row-after").click()
    wait(page, "return document.querySelectorAll('#row .given').length === 2")
    assert find(page, "#row-title").text == "Row 3"
    assert not find(page, "#row-after").is_enabled()
    assert texts(page, "#row .marked mark") == ["charged twice", "app crashes"]
    press(page, "ESCAPE")
    wait(page, "return !document.getElementById('row').open")
    focused = "return document.activeElement.closest('tr')?.dataset.row"
    assert page.execute_script(focused) == "1"


@pytest.mark.parametrize("size", [DESKTOP, PHONE, (320, 640)], ids=str)
def test_every_tab_fits_the_screen(visit, tmp_path, size):
    page = visit()
    set_view(page, size)
    assert overflow(page) <= 0
    open_file(page, tmp_path / "few.csv", [[n, TEXT] for n in range(60)])
    assert overflow(page) <= 0
    page.execute_script("document.querySelector('#rows button').click()")
    wait(page, "return document.querySelector('#row[open] .given')")
    inside = "const d = document.getElementById('row'); return d.scrollWidth - "
    assert page.execute_script(f"{inside} d.clientWidth") <= 0


CONTRAST = """
const parse = (colour) => {
  const numbers = colour.match(/[\\d.e-]+/g).map(Number);
  const scale = colour.startsWith("color(") ? 255 : 1;
  return [...numbers.slice(0, 3).map((n) => n * scale), numbers[3] ?? 1];
};
const luminance = (colour) => colour.slice(0, 3)
  .map((part) => part / 255)
  .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
  .reduce((sum, part, n) => sum + part * [0.2126, 0.7152, 0.0722][n], 0);
const behind = (element) => {
  for (let each = element; each; each = each.parentElement) {
    const colour = parse(getComputedStyle(each).backgroundColor);
    if (colour[3] === 1) return colour;
  }
  return [255, 255, 255, 1];
};
const faults = [];
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const element = walker.currentNode.parentElement;
  if (!walker.currentNode.textContent.trim() || !element.checkVisibility()) continue;
  if (element.closest(".marked, option, noscript, [disabled]")) continue;
  const [one, other] = [parse(getComputedStyle(element).color), behind(element)];
  const [dark, light] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  const ratio = (light + 0.05) / (dark + 0.05);
  if (ratio < 4.5) faults.push(`${element.className} ${ratio.toFixed(2)}`);
}
return faults;
"""
NAMED = (
    *("button", "checkbox", "combobox", "dialog", "link", "main", "region", "slider"),
    *("tab", "table", "tabpanel", "textbox"),
)


def nameless(page) -> list[str]:
    """Return what Chromium's accessibility tree has without a name."""
    nodes = page.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    return [
        node["role"]["value"]
        for node in nodes
        if not node.get("ignored")
        and node["role"]["value"] in NAMED
        and node["role"]["value"] != "main"
        and not node.get("name", {}).get("value", "").strip()
    ]


def check_access(page):
    assert page.execute_script(CONTRAST) == []
    assert nameless(page) == []
    doubled = """const ids = [...document.querySelectorAll('[id]')].map((e) => e.id);
        return ids.filter((id, n) => ids.indexOf(id) !== n)"""
    assert page.execute_script(doubled) == []
    skipped = """const levels = [...document.querySelectorAll('h1, h2, h3, h4')].filter(
            (e) => e.checkVisibility()).map((e) => Number(e.tagName[1]));
        return levels.filter((level, n) => n && level > levels[n - 1] + 1)"""
    assert page.execute_script(skipped) == []
    small = """const all = [...document.querySelectorAll('button, select, input')];
        const height = (e) => e.getBoundingClientRect().height;
        return all.filter((e) => e.checkVisibility() && height(e) < 24).map(
            (e) => e.outerHTML)"""
    assert page.execute_script(small) == []  # WCAG 2.5.8


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_all_can_be_read_and_has_a_name(visit, tmp_path, site, dark):
    page = visit()
    set_view(page, DESKTOP, dark=dark)
    find(page, ".other-labels .pick").click()
    find(page, ".change button").click()
    wait(page, "return document.querySelector('.change del')")
    page.execute_script("document.querySelector('.phrase').focus()")
    check_access(page)
    open_file(page, tmp_path / "few.csv", [[1, TEXT], [2, ASIDE]])
    check_access(page)
    page.execute_script("document.querySelector('#rows button').click()")
    wait(page, "return document.querySelector('#row[open] .given')")
    check_access(page)
    page.execute_script("window.fetch = undefined")
    page.get("about:blank")


def test_print_shows_the_text_with_its_marks_and_no_controls(visit):
    page = visit()
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        colours = page.execute_script(
            """return ['.marked', 'body'].map((each) => getComputedStyle(
                document.querySelector(each)).color)"""
        )
        assert colours[0] == colours[1]  # on screen, the letters are the text area's
        assert not find(page, "textarea").is_displayed()
        visible = "return [...document.querySelectorAll('.marked mark')].length"
        assert page.execute_script(visible) == 2
        for selector in (".tabs", "#threshold", "#add", ".examples", "footer"):
            assert not find(page, selector).is_displayed(), selector
        assert find(page, ".given .phrase").is_displayed()
    finally:
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_the_api_can_be_read(browser, site):
    set_view(browser, DESKTOP)
    browser.get(f"{site}/api.html")
    wait(browser, "return document.querySelector('section')")
    titles = texts(browser, "section h2")
    assert {"POST /v1/predict", "GET /v1/models"} <= set(titles)
    shown = find(browser, "#post-v1-predict").text
    assert f"curl -s {site}/v1/predict" in shown
    assert "threshold" in shown
    assert "From 0 to 1." in shown
    assert "The queue is full" in shown
    check_access(browser)
    set_view(browser, PHONE)
    assert overflow(browser) <= 0
    assert complaints(browser) == []
