import csv
import io
import random
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import numpy as np
import pyarrow as pa
import pytest

from browser_driver import (
    DESKTOP,
    PHONE,
    browser,  # noqa: F401 (a fixture)
    complaints,
    missing,
    open_browser,
    overflow,
    set_view,
)
from serving import Gate, multi_label, running, single_label, toy_service
from textcapsules.data.table import TableWriter
from textcapsules.deploy.service.app import PAGE
from textcapsules.deploy.service.limits import Limits
from textcapsules.draw.palette import N_COLOURS, label_style
from textcapsules.model.classifier import Labels, TextClassifier
from toy import trained_model

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing()), reason=missing() or "none"),
]

PAIR = "my cat purr kitten whisker, the dog bark puppy leash"
DOGS = "dog bark puppy leash wag bone dog bark"
NASTY = """<img src=x onerror="document.title='owned'"><script>document.title='owned'
</script> cat "purr" & kitten </textarea><b>dog</b> \u202eevil\u202c 😀 bark"""
ROWS = [
    ["id", "text", "note"],
    ["1", 'my "cat" purr, kitten meow', "a;b"],
    ["2", "dog bark\nputs the\r\npuppy leash", ""],
    ["3", "", "empty"],
    ["4", "<b>bird</b> wing feather nest 😀", "=1+1"],
    ["5", "zzz qqq", " spaces "],
]


@pytest.fixture(scope="module")
def site():
    service = toy_service(Limits(max_texts=2))  # a table needs several requests
    service.models["tags"] = multi_label(0.4)
    with running(service) as client:
        yield str(client.base_url).rstrip("/")


@pytest.fixture
def page(browser, site):  # noqa: F811
    """Return the page at its start, and see in the end that nothing complained."""
    set_view(browser, DESKTOP)
    browser.get("about:blank")
    complaints(browser)
    browser.get(f"{site}/#model=tags&text=")
    wait(browser, "return document.querySelectorAll('.card').length === 1")
    yield browser
    assert complaints(browser) == []


def wait(driver, script, *args):
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(driver, 30, 0.05).until(
        lambda _: driver.execute_script(script, *args)
    )


def find(driver, selector):
    return driver.find_element("css selector", selector)


def find_all(driver, selector):
    return driver.find_elements("css selector", selector)


def write(driver, text, card=0):
    """Put a text into a card as typing would, and wait for its answer."""
    driver.execute_script(
        """const area = document.querySelectorAll('.card textarea')[arguments[0]];
        area.value = arguments[1];
        area.dispatchEvent(new Event('input'));""",
        card,
        text,
    )
    wait(
        driver,
        """const card = document.querySelectorAll('.card')[arguments[0]];
        const shown = card.querySelector('.marked').textContent;
        return !card.hasAttribute('aria-busy') && shown === arguments[1];""",
        card,
        text,
    )


def given(driver, card=0) -> list[str]:
    return driver.execute_script(
        """const card = document.querySelectorAll('.card')[arguments[0]];
        return [...card.querySelectorAll('.answer .chip')].map(
            (chip) => chip.firstChild.textContent);""",
        card,
    )


def set_threshold(driver, value):
    driver.execute_script(
        """const slider = document.getElementById('threshold');
        slider.value = arguments[0];
        slider.dispatchEvent(new Event('input'));""",
        str(value),
    )


def requests_made(driver) -> int:
    script = "return performance.getEntriesByName(location.origin + '/v1/predict')"
    return len(driver.execute_script(script))


def test_typing_is_answered_as_predict_answers(page):
    find(page, "textarea").send_keys("my cat purr kitten meow")
    wait(page, "return document.querySelectorAll('.answer .chip').length > 0")
    write(page, PAIR)
    (expected,) = multi_label(0.4).predict([PAIR])
    assert given(page) == list(expected.labels)
    shown = {
        find_all(row, ".name")[0].text: find_all(row, ".value")[0].text
        for row in find_all(page, ".labels li")
    }
    names = multi_label().labels.names
    assert shown == {
        name: f"{score:.2f}" for name, score in zip(names, expected.scores, strict=True)
    }
    assert find(page, ".answer").get_attribute("role") == "status"
    shown = f"{expected.known} of {expected.words} words known"
    assert find(page, ".known").text == shown


def test_the_page_tells_how_many_words_are_known(page):
    write(page, "my cat zzz blorf")
    assert find(page, ".known").text == "2 of 4 words known"
    page.execute_script(
        """const area = document.querySelector('.card textarea');
        area.value = '';
        area.dispatchEvent(new Event('input'));"""
    )
    wait(page, "return document.querySelector('.known').hidden")


def test_nothing_is_asked_of_anyone_else(page, site):
    write(page, PAIR)
    script = "return performance.getEntriesByType('resource').map((e) => e.name)"
    names = page.execute_script(script)
    assert len(names) > 8
    assert all(name.startswith(f"{site}/") for name in names)


def test_the_slider_decides_as_the_service_would_and_asks_nothing(page):
    write(page, PAIR)
    before, classifier = requests_made(page), multi_label(0.4)
    sizes = set()
    for threshold in np.linspace(0, 1, 21).round(2):
        set_threshold(page, threshold)
        (expected,) = classifier.predict([PAIR], threshold=float(threshold))
        assert given(page) == list(expected.labels), threshold
        sizes.add(len(expected.labels))
    assert len(sizes) > 1
    assert requests_made(page) == before
    find(page, "#calibrated").click()
    assert given(page) == list(classifier.predict([PAIR])[0].labels)


def test_a_text_is_shown_as_itself_whatever_it_holds(page):
    elements = "return document.querySelector('main').querySelectorAll('img,script,b')"
    before = page.execute_script(f"{elements}.length")
    write(page, NASTY)
    assert page.execute_script("return document.querySelector('.marked').textContent")
    assert page.title == "textcapsules"
    inside = "return document.querySelectorAll('.card img, .card script').length"
    assert page.execute_script(inside) == 0
    names = page.execute_script(f"return [...({elements[7:]})].map(e => e.className)")
    assert len(names) - before == names.count("name")  # our own, for the phrases


def test_highlights_name_the_words_of_each_label(page):
    write(page, PAIR)

    def marked() -> str:
        return " ".join(mark.text for mark in find_all(page, ".marked mark"))

    for label, words in {"cats": "cat purr kitten", "dogs": "dog bark"}.items():
        row = page.execute_script(
            """return [...document.querySelectorAll('.labels button')].find(
                (row) => row.querySelector('.name').textContent === arguments[0])""",
            label,
        )
        row.click()
        assert row.get_attribute("aria-pressed") == "true"
        assert page.switch_to.active_element == row
        assert label in find(page, ".reasons h3").text
        assert any(word in marked() for word in words.split())
        row.click()
        assert row.get_attribute("aria-pressed") == "false"
    find(page, ".shares .orphan").click()
    assert "orphan" in find(page, ".reasons h3").text
    legend = find(page, ".legend").text
    shares = [int(share) for share in re.findall(r"(\d+) %", legend)]
    assert sum(shares) == pytest.approx(100, abs=1)


def test_texts_stand_side_by_side(page):
    write(page, "cat purr kitten meow")
    find(page, "#add").click()
    areas = find_all(page, "textarea")
    assert page.switch_to.active_element == areas[1]
    write(page, DOGS, card=1)
    expected = multi_label(0.4).predict(["cat purr kitten meow", DOGS])
    assert [given(page, 0), given(page, 1)] == [list(one.labels) for one in expected]
    assert given(page, 0) != given(page, 1)
    boxes = [card.rect for card in find_all(page, ".card")]
    assert boxes[0]["y"] == boxes[1]["y"]
    find_all(page, ".remove")[0].click()
    assert [area.get_attribute("value") for area in find_all(page, "textarea")] == [
        DOGS
    ]
    assert find(page, ".card h2").text == "Text 1"


def test_a_link_brings_everything_back(page):
    page.execute_script("navigator.clipboard.writeText = () => Promise.reject()")
    write(page, NASTY)
    find(page, "#add").click()
    write(page, "dog & bird = 100% + #1 😀", card=1)
    set_threshold(page, 0.37)
    find_all(page, ".card")[0].find_elements("css selector", ".labels button")[
        1
    ].click()

    def state():
        return page.execute_script(
            """return [document.getElementById('threshold').value,
                document.getElementById('model').value,
                [...document.querySelectorAll('textarea')].map((area) => area.value),
                [...document.querySelectorAll('.reasons h3')].map((h) => h.textContent),
                [...document.querySelectorAll('.answer')].map((a) => a.textContent)]"""
        )

    before = state()
    find(page, "#copy").click()
    wait(page, "return document.getElementById('link').value")
    link = find(page, "#link").get_attribute("value")
    page.get("about:blank")
    page.get(link)
    wait(page, "return document.querySelectorAll('.reasons:not([hidden])').length == 2")
    assert state() == before
    assert before[:2] == ["0.37", "tags"]


@pytest.mark.parametrize(
    ("separator", "bom", "scores", "safe"),
    [(",", "", True, False), (";", "\ufeff", False, False), ("|", "", True, True)],
)
def test_a_csv_comes_back_with_its_labels(page, tmp_path, separator, bom, scores, safe):
    written = io.StringIO()
    csv.writer(written, delimiter=separator).writerows(ROWS)
    source = tmp_path / "my.tickets.csv"
    source.write_bytes((bom + written.getvalue()).encode())
    page.execute_cdp_cmd(
        "Browser.setDownloadBehavior",
        {"behavior": "allow", "downloadPath": str(tmp_path)},
    )
    find(page, "#file").send_keys(str(source))
    wait(page, "return !document.getElementById('table-options').hidden")
    if scores:
        find(page, "#with-scores").click()
    if safe:
        find(page, "#excel-safe").click()
    find(page, "#label-rows").click()
    wait(page, "return !document.getElementById('download').hidden")
    assert "5 rows labelled" in find(page, "#table-status").text
    find(page, "#download").click()
    target = tmp_path / "my.tickets_labelled.csv"
    from selenium.webdriver.support.ui import WebDriverWait

    # The browser reserves the name with an empty file before the whole one replaces it.
    WebDriverWait(page, 30, 0.05).until(
        lambda _: target.exists() and target.stat().st_size
    )
    content = target.read_bytes().decode()
    assert content.startswith("\ufeff") == bool(bom)
    header, *rows = csv.reader(
        io.StringIO(content.removeprefix("\ufeff"), newline=""), delimiter=separator
    )
    classifier = multi_label(0.4)
    names = classifier.labels.names
    counts = ["words_known", "words_read"]
    extra = [*(f"score_{name}" for name in names), *counts] if scores else []
    assert header == [*ROWS[0], "predicted", *extra]
    shown = {"=1+1": "'=1+1"} if safe else {}
    assert [row[:3] for row in rows] == [
        [shown.get(cell, cell) for cell in row] for row in ROWS[1:]
    ]
    expected = classifier.predict([row[1] for row in ROWS[1:]])
    assert [row[3] for row in rows] == ["; ".join(one.labels) for one in expected]
    if scores:
        found = np.array([[float(cell) for cell in row[4:-2]] for row in rows])
        np.testing.assert_allclose(found, [one.scores for one in expected], atol=1e-6)
        counted = [[int(cell) for cell in row[-2:]] for row in rows]
        assert counted == [[one.known, one.words] for one in expected]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"text\n", "there must be a row below the header"),
        (b"text,b\nx\n", "row 1 must have 2 cells, as the header has; it has 1"),
        (b'text,b\n"x,y\n', "every opened quote must be closed"),
        (b'text,b\n"x"y,z\n', "nothing behind a closing quote"),
        (b"text,predicted\nx,y\n", 'no column "predicted"'),
        (b"text\n\xff\n", "the file must be UTF-8"),
        (b"", "there must be a row"),
    ],
)
def test_a_csv_that_cannot_be_read_is_told(page, tmp_path, content, message):
    file = tmp_path / "bad.csv"
    file.write_bytes(content)
    find(page, "#file").send_keys(str(file))
    wait(page, "return document.getElementById('table-status').textContent")
    assert message in find(page, "#table-status").text
    assert not find(page, "#table-options").is_displayed()


def test_csv_is_read_and_written_as_python_does(page):
    draw = random.Random(5)
    cells = ["", "a", " b ", 'q"', '""', ",", ";", "\t", "\n", "\r\n", "x\ny", "ü😀"]
    tables = []
    for separator in ",;\t|":
        for width in (1, 2, 3):
            rows = [
                [draw.choice(cells) + draw.choice(cells) for _ in range(width)]
                for _ in range(30)
            ]
            written = io.StringIO()
            csv.writer(written, delimiter=separator).writerows(rows)
            tables.append([written.getvalue(), separator, rows])
    results = page.execute_async_script(
        """const [tables, done] = arguments;
        import('/csv.js').then(({ parseCsv, formatCsv }) => done(tables.map(
            ([text, separator, rows]) =>
                [parseCsv(text, separator), formatCsv(rows, separator)])));""",
        tables,
    )
    for (_, separator, rows), (parsed, formatted) in zip(tables, results, strict=True):
        assert parsed == rows
        again = io.StringIO(formatted, newline="")
        assert list(csv.reader(again, delimiter=separator)) == rows


def test_formulas_are_told_from_numbers_as_python_does(page):
    texts = [
        "=1",
        "+x",
        "-x",
        "@x",
        "\tx",
        "\rx",
        "-5",
        "+3.2",
        "-1,5e-3",
        "-1+2",
        "a=",
        "",
    ]
    found = page.execute_async_script(
        """const [rows, done] = arguments;
        import('/csv.js').then((module) => done(module.withoutFormulas(rows)));""",
        [texts],
    )
    written = pa.BufferOutputStream()
    batch = pa.record_batch([pa.array(texts)], names=["text"])
    with closing(TableWriter(written, batch.schema, "csv", excel_safe=True)) as writer:
        writer.write(batch)
    content = written.getvalue().to_pybytes().decode()
    _, *rows = csv.reader(io.StringIO(content, newline=""))
    assert found == [[row[0] for row in rows]]
    assert found[0][:7] == ["'=1", "'+x", "'-x", "'@x", "'\tx", "'\rx", "-5"]


def test_decisions_are_those_of_the_library(page):
    draw = np.random.default_rng(3)
    names = ("10", "9", "b", "a")  # JavaScript sorts keys that look like numbers
    scores = draw.choice([0, 0.25, 0.5, 0.75, 0.1], (60, 4)).astype(np.float32)
    scores[:20] = draw.random((20, 4), dtype=np.float32)
    for task in ("single-label", "multi-label"):
        classifier = TextClassifier.load(trained_model(), "cpu")
        classifier.labels = Labels(names, (0.1, 0.5, 0.3, 0.75), task)
        model = {
            "task": task,
            "labels": [
                {"name": name, "threshold": threshold}
                for name, threshold in zip(
                    names, classifier.labels.thresholds, strict=True
                )
            ],
        }
        for threshold in (None, 0.0, 0.1, 0.5, 1.0):
            found = page.execute_async_script(
                """const [model, scores, threshold, done] = arguments;
                import('/decide.js').then(({ decide }) => done(
                    scores.map((row) => decide(model, row, threshold))));""",
                model,
                [dict(zip(names, map(float, row), strict=True)) for row in scores],
                threshold,
            )
            decided = classifier.decide(scores, threshold=threshold)
            expected = [
                list(classifier.names(*row))
                for row in zip(scores, decided, strict=True)
            ]
            assert found == expected, (task, threshold)


@pytest.mark.parametrize("size", [DESKTOP, PHONE, (320, 640)])
def test_the_page_fits_the_screen(page, size):
    set_view(page, size)
    write(page, PAIR)
    assert overflow(page) <= 0
    find(page, "#add").click()
    write(page, "cat" + "purr" * 200 + " kitten", card=1)  # one endless word
    assert overflow(page) <= 0


def test_dark_is_dark(page):
    background = "return getComputedStyle(document.querySelector('.panel')).background"
    set_view(page, DESKTOP, dark=True)
    assert "rgb(21, 24, 29)" in page.execute_script(background)
    set_view(page, DESKTOP)
    assert "rgb(255, 255, 255)" in page.execute_script(background)


def test_every_control_has_a_name_and_can_be_reached(page):
    write(page, PAIR)
    nameless = page.execute_script(
        """const shown = (e) => e.offsetParent !== null;
        return [...document.querySelectorAll('input, select, textarea, button')]
            .filter(shown)
            .filter((e) => !(e.labels?.length || e.ariaLabel || e.textContent.trim()))
            .map((e) => e.outerHTML)"""
    )
    assert nameless == []
    unreachable = page.execute_script(
        "return document.querySelectorAll('[tabindex]:not([tabindex=\"-1\"])').length"
    )
    assert unreachable == 0  # the order of the document is the order of the keys
    from selenium.webdriver.common.keys import Keys

    page.execute_script("document.activeElement.blur()")
    seen = []
    for _ in range(7):
        page.switch_to.active_element.send_keys(Keys.TAB)
        active = page.switch_to.active_element
        seen.append(active.get_attribute("id") or active.get_attribute("class"))
    assert seen[:2] == ["skip", "model"]
    assert "threshold" in seen
    outline = "return getComputedStyle(document.activeElement).outlineStyle"
    assert page.execute_script(outline) != "none"


def test_the_skip_link_keeps_what_was_written(page):
    write(page, PAIR)
    page.execute_script("document.querySelector('.skip').click()")
    assert page.execute_script("return location.hash") == "#texts"
    assert find(page, "textarea").get_attribute("value") == PAIR


def test_another_model_answers_anew(page):
    write(page, PAIR)
    page.execute_script(
        """const select = document.getElementById('model');
        select.value = 'pets';
        select.dispatchEvent(new Event('change'));"""
    )
    (expected,) = single_label().predict([PAIR])
    wait(page, "return document.querySelectorAll('.answer .chip').length === 1")
    assert given(page) == list(expected.labels)
    assert "Only the highest label" in find(page, "#rule").text


def test_a_full_queue_is_waited_for(browser):  # noqa: F811
    service = toy_service(Limits(max_texts=1, queue=1))
    gate = Gate(service)
    ask = {"model": "pets", "texts": "cat"}
    with running(service) as client, ThreadPoolExecutor(2) as pool:
        pool.submit(client.post, "/v1/predict", json=ask)
        assert gate.entered.wait(30)
        pool.submit(client.post, "/v1/predict", json=ask)
        while service.batcher.waiting < 1:
            pass
        browser.get(f"{str(client.base_url).rstrip('/')}/#model=pets&text=dog+bark")
        wait(browser, "return document.querySelector('.card[aria-busy]')")
        while 'status="429"' not in client.get("/metrics").text:
            pass
        gate.open.set()
        wait(browser, "return document.querySelectorAll('.answer .chip').length === 1")
        assert given(browser) == list(single_label().predict(["dog bark"])[0].labels)
    complaints(browser)  # Chromium logs the refusal


def test_a_token_is_asked_for_and_kept():
    token = "0123456789abcdef"
    with running(toy_service(), token=token) as client, open_browser() as driver:
        driver.get(str(client.base_url))
        wait(driver, "return !document.getElementById('token-form').hidden")
        assert not find_all(driver, ".card")
        find(driver, "#token").send_keys("wrong-wrong-wrong\n")
        wait(driver, "return performance.getEntriesByType('resource').length > 0")
        find(driver, "#token").clear()
        find(driver, "#token").send_keys(f"{token}\n")
        wait(driver, "return document.querySelectorAll('.card').length === 1")
        assert not find(driver, "#token-form").is_displayed()
        driver.refresh()
        wait(driver, "return document.querySelectorAll('.card').length === 1")


def luminance(colour) -> float:
    parts = [part / 255 for part in colour]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one, other) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_marked_words_can_be_read(page, dark):
    set_view(page, DESKTOP, dark=dark)
    colours = page.execute_script(
        """const paint = (properties) => {
            const mark = document.querySelector('.marked').appendChild(
                document.createElement('mark'));
            for (const [name, value] of properties) mark.style.setProperty(name, value);
            const { color, backgroundColor } = getComputedStyle(mark);
            mark.remove();
            return [color, backgroundColor];
        };
        return [0, 1, 2, 3, 4, 5, 6].map((place) => paint(
            [['--colour', `var(--label-${place})`], ['--strength', 1]]));"""
    )

    def parse(colour: str) -> list[float]:
        numbers = [float(part) for part in re.findall(r"[\d.]+", colour)][:3]
        return [255 * n for n in numbers] if colour.startswith("color(") else numbers

    assert len({background for _, background in colours}) == N_COLOURS
    for ink, background in colours:
        assert contrast(parse(ink), parse(background)) >= 4.5


def test_labels_have_the_colours_and_lines_of_the_reports(page):
    styles = page.execute_async_script(
        """const [n, done] = arguments;
        import('/highlight.js').then(({ setStyle }) => done([...Array(n).keys()].map(
            (place) => ['colour', 'line'].map((name) => setStyle(
                document.createElement('i'), place).style.getPropertyValue(`--${name}`)
            ))));""",
        30,
    )
    for place, (colour, line) in enumerate(styles):
        assert (colour, line) == (
            f"var(--label-{label_style(place)[0]})",
            label_style(place)[1],
        )


def test_the_page_is_self_contained():
    for file in PAGE.iterdir():
        text = file.read_text(encoding="utf-8").replace(
            "http://www.w3.org/2000/svg", ""
        )
        assert not re.search(r"https?://|innerHTML|outerHTML|eval\(", text), file.name
        assert "style=" not in text
        assert not re.search(r"\son\w+=", text), file.name
