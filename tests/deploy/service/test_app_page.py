import csv
import io
import itertools
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
from textcapsules.draw.palette import N_COLOURS, label_style, label_tags
from textcapsules.model.classifier import Labels, TextClassifier
from toy import trained_model

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing()), reason=missing() or "none"),
]

PAIR = "my cat purr kitten whisker, the dog bark puppy leash"
CATS_AND_BIRDS = (
    "cat purr kitten meow whisker cat purr. bird wing feather nest song bird wing"
)
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
def page(browser, site):
    """Return the page at its start, and see in the end that nothing complained."""
    set_view(browser, DESKTOP)
    browser.get("about:blank")
    complaints(browser)
    browser.get(f"{site}/#model=tags&text=")
    wait(browser, "return document.querySelectorAll('#texts .work').length === 1")
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


ANSWERED = """!document.querySelectorAll('#texts .work')[arguments[0]].hasAttribute(
    'aria-busy')"""


def write(driver, text, place=0):
    """Put a text into its pane as typing would, and wait for its answer."""
    driver.execute_script(
        """const area = document.querySelectorAll('#texts textarea')[arguments[0]];
        area.value = arguments[1];
        area.dispatchEvent(new Event('input'));""",
        place,
        text,
    )
    wait(driver, f"return {ANSWERED}", place)


def given(driver, place=0) -> list[str]:
    return driver.execute_script(
        """const work = document.querySelectorAll('#texts .work')[arguments[0]];
        return [...work.querySelectorAll('.given .name')].map((e) => e.textContent);""",
        place,
    )


def scores(driver) -> dict[str, str]:
    return driver.execute_script(
        """return Object.fromEntries([...document.querySelectorAll('.work .pick')].map(
            (e) => [e.querySelector('.name'), e.querySelector('.value')].map(
                (part) => part.textContent)))"""
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
    wait(page, "return document.querySelectorAll('.given').length > 0")
    write(page, PAIR)
    (expected,) = multi_label(0.4).predict([PAIR])
    assert given(page) == list(expected.labels)
    names = multi_label().labels.names
    assert scores(page) == {
        name: f"{score:.2f}" for name, score in zip(names, expected.scores, strict=True)
    }
    answer = find(page, ".answer")
    assert answer.get_attribute("role") == "status"
    *most, last = expected.labels
    told = f"{len(expected.labels)} labels: {', '.join(most)} and {last}"
    assert answer.get_attribute("textContent") == told
    shown = f"{expected.known} of {expected.words} words known"
    assert find(page, ".known").text == shown


def test_the_page_tells_how_many_words_are_known(page):
    write(page, "my cat zzz blorf")
    assert find(page, ".known").text == "2 of 4 words known"
    write(page, "")
    assert not find_all(page, ".known")


@pytest.mark.parametrize(
    ("text", "threshold", "state", "title"),
    [
        ("", 0.5, "empty", "No text yet"),
        ("zzz qqq", 0.5, "unreadable", "No label: the model knows no word"),
        (PAIR, 1, "none", "No label: no score is high enough"),
    ],
    ids=["empty", "unreadable", "none"],
)
def test_an_answer_without_a_label_says_why(page, text, threshold, state, title):
    set_threshold(page, threshold)
    write(page, text)
    answer = find(page, ".answer")
    assert answer.get_attribute("data-state") == state
    assert answer.text.startswith(title)
    assert given(page) == []
    if state == "none":
        values = multi_label().predict([text])[0].scores
        best = int(np.argmax(values))
        name, missing = multi_label().labels.names[best], 1 - values[best]
        assert f"The nearest is {name}; it lacks {missing:.2f}." in answer.text


def test_marks_lie_exactly_under_the_letters(page):
    for size, text in itertools.product(
        (DESKTOP, PHONE), (PAIR * 12, "cat\n\ndog bark\n", "a " * 300, NASTY)
    ):
        set_view(page, size)
        write(page, text)
        marked, area = page.execute_script(
            """return ['.marked', 'textarea'].map((selector) => {
                const { x, y, width, height } = document.querySelector(
                    selector).getBoundingClientRect();
                return [x, y, width, height];
            })"""
        )
        assert marked == area
        inside = "const a = document.querySelector('textarea'); return a.scrollHeight"
        assert page.execute_script(inside) <= marked[3] + 1  # lines break alike
        shown = page.execute_script(
            "return document.querySelector('.marked').textContent"
        )
        assert shown == text


def test_marks_move_with_the_letters_until_the_answer_is_there(page):
    found = page.execute_async_script(
        """const done = arguments[0];
        import('/highlight.js').then(({ moved }) => done([
            ['my cat purr dog', 'my fat cat purr dog'], ['😀 cat dog', '😀 cat, dog'],
            ['cat dog', 'dog'], ['cat dog', ''], ['', 'cat'], ['cat', 'cat'],
        ].map(([before, after]) => {
            const points = Array.from(before);
            const phrases = ['cat', 'dog'].flatMap((text) => {
                const start = Array.from(before.slice(0, before.indexOf(text))).length;
                return before.includes(text) ? [{ start, end: start + 3 }] : [];
            });
            return moved(phrases, before, after).map(({ start, end }) =>
                Array.from(after).slice(start, end).join(''));
        })));"""
    )
    assert found == [["cat", "dog"], ["cat", "dog"], ["dog"], [], [], ["cat"]]


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
    write(page, NASTY)
    shown = "return document.querySelector('.marked').textContent"
    assert page.execute_script(shown) == NASTY.replace("\r", "")
    assert page.title == "textcapsules"
    inside = "return document.querySelectorAll('.work img, .work script').length"
    assert page.execute_script(inside) == 0
    bold = "return [...document.querySelectorAll('.work b')].map((e) => e.textContent)"
    assert "dog" not in page.execute_script(bold)


def pick(driver, label):
    return driver.execute_script(
        """return [...document.querySelectorAll('.pick')].find(
            (row) => row.querySelector('.name').textContent === arguments[0])""",
        label,
    )


def marked(driver) -> str:
    script = (
        "return [...document.querySelectorAll('.marked mark')].map(m => m.textContent)"
    )
    return " ".join(driver.execute_script(script))


def test_all_labels_are_marked_at_once_and_one_when_picked(page):
    write(page, CATS_AND_BIRDS)
    words = {"cats": "cat purr kitten", "birds": "bird wing feather nest"}
    assert given(page) == list(words)
    tags = page.execute_script(
        "return [...document.querySelectorAll('.tags b')].map((e) => e.dataset.tag)"
    )
    assert set(tags) == {"CA", "BI"}
    for some in words.values():
        assert any(word in marked(page) for word in some.split())
    for label, some in words.items():
        pick(page, label).click()
        assert pick(page, label).get_attribute("aria-pressed") == "true"
        assert page.switch_to.active_element == pick(page, label)
        assert any(word in marked(page) for word in some.split())
        only = page.execute_script(
            "return [...document.querySelectorAll('.key .tag')].map(e => e.textContent)"
        )
        assert only == [label[:2].upper()]
        pick(page, label).click()
        assert pick(page, label).get_attribute("aria-pressed") == "false"


def test_a_label_not_given_says_how_far_it_is(page):
    write(page, CATS_AND_BIRDS)
    other, threshold = "dogs", 0.4
    values = multi_label().predict([CATS_AND_BIRDS])[0].scores
    score = float(values[multi_label().labels.names.index(other)])
    assert pick(page, other).get_attribute("aria-expanded") == "false"
    pick(page, other).click()
    assert pick(page, other).get_attribute("aria-expanded") == "true"
    assert page.switch_to.active_element == pick(page, other)
    text = find(page, ".why").text
    short = f"{threshold - score:.2f} below the threshold of {threshold:.2f}"
    assert f"Its score is {score:.2f}, {short}." in text


def test_every_share_of_the_text_is_accounted_for(page):
    write(page, PAIR)
    legend = find(page, ".legend").text
    shares = [int(share) for share in re.findall(r"(\d+) %", legend)]
    assert sum(shares) == pytest.approx(100, abs=1)
    assert "is background" in legend
    assert "of the text nobody claimed" in legend
    find(page, ".background").click()
    assert find(page, ".background").get_attribute("aria-pressed") == "true"
    assert find(page, ".key").text.startswith("··")


def test_one_phrase_has_one_number(page):
    write(page, PAIR)
    for button in find_all(page, ".phrase"):
        text = find_all(button, "bdi")[0].get_attribute("textContent")
        value = find_all(button, ".value")[0].text
        page.execute_script("arguments[0].focus()", button)
        told = find(page, ".tip").text
        assert text in told
        assert value.lstrip("−+") in told
        assert value.lstrip("−+") in button.accessible_name
    assert find_all(page, ".phrase")


def test_texts_are_compared(page):
    write(page, "cat purr kitten meow")
    find(page, "#add").click()
    areas = find_all(page, "#texts textarea")
    assert page.switch_to.active_element == areas[1]
    write(page, DOGS, place=1)
    expected = multi_label(0.4).predict(["cat purr kitten meow", DOGS])
    assert [given(page, 0), given(page, 1)] == [list(one.labels) for one in expected]
    assert given(page, 0) != given(page, 1)
    assert [e.text for e in find_all(page, "#texts h2")] == ["Text 1", "Text 2"]
    find_all(page, ".remove")[0].click()
    left = find_all(page, "#texts textarea")
    assert [area.get_attribute("value") for area in left] == [DOGS]
    assert page.switch_to.active_element == left[0]
    assert find(page, ".work h2").text == "Text"


def test_a_link_brings_everything_back(page):
    page.execute_script("navigator.clipboard.writeText = () => Promise.reject()")
    write(page, NASTY)
    find(page, "#add").click()
    write(page, "dog & bird = 100% + #1 😀", place=1)
    set_threshold(page, 0.37)
    find(page, ".other-labels .pick").click()

    def state():
        return page.execute_script(
            """const texts = (selector) => [...document.querySelectorAll(
                `#texts ${selector}`)].map((e) => e.textContent);
            return [document.getElementById('threshold').value,
                document.getElementById('model').value,
                [...document.querySelectorAll('textarea')].map((area) => area.value),
                texts('.why'), texts('.answer'), texts('.key')]"""
        )

    before = state()
    find(page, "#copy").click()
    wait(page, "return document.getElementById('link').value")
    link = find(page, "#link").get_attribute("value")
    page.get("about:blank")
    page.get(link)
    wait(page, "return document.querySelectorAll('.known').length == 2")
    assert state() == before
    assert before[:2] == ["0.37", "tags"]
    assert len(before[3]) == 1


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
    find(page, "#tab-file").click()
    find(page, "#file").send_keys(str(source))
    wait(page, "return !document.getElementById('table-options').hidden")
    find(page, "#label-rows").click()
    wait(page, "return !document.getElementById('results').hidden")
    if scores:
        find(page, "#with-scores").click()
    if safe:
        find(page, "#excel-safe").click()
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
    find(page, "#tab-file").click()
    find(page, "#file").send_keys(str(file))
    wait(page, "return document.querySelector('#table-status.fault')")
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
    write(page, "cat" + "purr" * 200 + " kitten", place=1)  # one endless word
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
    reordered = page.execute_script(
        "return [...document.querySelectorAll('[tabindex]')].map((e) => e.tabIndex)"
    )
    assert max(reordered) <= 0  # the order of the document is the order of the keys
    from selenium.webdriver.common.keys import Keys

    page.execute_script("document.activeElement.blur()")
    seen = []
    for _ in range(7):
        page.switch_to.active_element.send_keys(Keys.TAB)
        active = page.switch_to.active_element
        seen.append(active.get_attribute("id") or active.get_attribute("class"))
    assert seen[:4] == ["skip", "model", "tab-text", "threshold"]
    outline = "return getComputedStyle(document.activeElement).outlineStyle"
    assert page.execute_script(outline) != "none"


def test_the_skip_link_keeps_what_was_written(page):
    write(page, PAIR)
    page.execute_script("document.querySelector('.skip').click()")
    assert page.execute_script("return location.hash") == "#main"
    assert find(page, "textarea").get_attribute("value") == PAIR


def test_another_model_answers_anew(page):
    write(page, PAIR)
    page.execute_script(
        """const select = document.getElementById('model');
        select.value = 'pets';
        select.dispatchEvent(new Event('change'));"""
    )
    (expected,) = single_label().predict([PAIR])
    wait(page, "return document.querySelectorAll('.given').length === 1")
    assert given(page) == list(expected.labels)
    assert "Only the highest label" in find(page, "#rule").text


def test_a_full_queue_is_waited_for(browser):
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
        wait(browser, "return document.querySelector('.work[aria-busy]')")
        while 'status="429"' not in client.get("/metrics").text:
            pass
        gate.open.set()
        wait(browser, "return document.querySelectorAll('.given').length === 1")
        assert given(browser) == list(single_label().predict(["dog bark"])[0].labels)
    complaints(browser)  # Chromium logs the refusal


def test_a_token_is_asked_for_and_kept():
    token = "0123456789abcdef"
    with running(toy_service(), token=token) as client, open_browser() as driver:
        driver.get(str(client.base_url))
        wait(driver, "return !document.getElementById('token-form').hidden")
        assert not find_all(driver, ".work")
        find(driver, "#token").send_keys("wrong-wrong-wrong\n")
        wait(driver, "return performance.getEntriesByType('resource').length > 0")
        find(driver, "#token").clear()
        find(driver, "#token").send_keys(f"{token}\n")
        wait(driver, "return document.querySelectorAll('#texts .work').length === 1")
        assert not find(driver, "#token-form").is_displayed()
        driver.refresh()
        wait(driver, "return document.querySelectorAll('#texts .work').length === 1")


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
        """const paint = (name, properties) => {
            const mark = document.querySelector('.marked').appendChild(
                document.createElement('mark'));
            mark.className = name;
            for (const [name, value] of properties) mark.style.setProperty(name, value);
            const { backgroundColor } = getComputedStyle(mark);
            mark.remove();
            return backgroundColor;
        };
        const ink = getComputedStyle(document.querySelector('textarea')).color;
        return [...Array(arguments[0]).keys()].flatMap((place) => ['', 'lit'].map(
            (name) => [ink, paint(name,
                [['--colour', `var(--label-${place})`], ['--strength', 1]])]));""",
        N_COLOURS,
    )

    def parse(colour: str) -> list[float]:
        numbers = [float(part) for part in re.findall(r"[\d.]+", colour)][:3]
        return [255 * n for n in numbers] if colour.startswith("color(") else numbers

    assert len({background for _, background in colours}) == 2 * N_COLOURS
    for ink, background in colours:
        assert contrast(parse(ink), parse(background)) >= 4.5


def test_labels_have_the_colours_and_lines_of_the_reports(page):
    styles = page.execute_async_script(
        """const [n, done] = arguments;
        import('/labels.js').then(({ setStyle }) => done([...Array(n).keys()].map(
            (place) => ['colour', 'line'].map((name) => setStyle(
                document.createElement('i'), place).style.getPropertyValue(`--${name}`)
            ))));""",
        50,
    )
    for place, (colour, line) in enumerate(styles):
        assert (colour, line) == (
            f"var(--label-{label_style(place)[0]})",
            label_style(place)[1],
        )


def test_labels_have_the_tags_of_the_reports(page):
    names = [
        "a",
        "a b",
        "ab",
        "AB",
        "a-b",
        "a1",
        "",
        "?",
        "été",
        "日本",
        "_",
        "ß",
        "ab",
    ]
    for some in (names, ["same"] * 60, [f"label {n}" for n in range(99)]):
        found = page.execute_async_script(
            """const [names, done] = arguments;
            import('/labels.js').then(({ labelTags }) => done(labelTags(names)));""",
            some,
        )
        assert tuple(found) == label_tags(some)


def test_the_page_is_light():
    sizes = {file.name: file.stat().st_size for file in PAGE.iterdir()}
    assert sum(sizes.values()) < 150_000, sizes


def test_the_page_is_self_contained():
    for file in PAGE.iterdir():
        text = file.read_text(encoding="utf-8").replace(
            "http://www.w3.org/2000/svg", ""
        )
        assert not re.search(r"https?://|innerHTML|outerHTML|eval\(", text), file.name
        assert "style=" not in text
        assert not re.search(r"\son\w+=", text), file.name
