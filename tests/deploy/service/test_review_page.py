"""The review in a browser: by keyboard alone, reloaded, in two tabs, server killed."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from browser_driver import (
    DESKTOP,
    PHONE,
    complaints,
    missing,
    overflow,
    set_view,
)
from textcapsules.data.reviews import log_path
from textcapsules.deploy.service.answers import Service
from textcapsules.deploy.service.app import create_app
from textcapsules.deploy.service.limits import Limits
from textcapsules.deploy.service.run import ReviewFiles, open_desk, server_config
from textcapsules.model.classifier import TextClassifier
from toy import model_copy, spawn, toy_rows, write_csv

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing()), reason=missing() or "none"),
]

NASTY = "<img src=x onerror=\"document.title='owned'\"> cat purr 😀 kitten & meow"
TRUTH = {**dict(toy_rows(29, seed=3)), NASTY: "cats"}
KEY = {"birds": "1", "cats": "2", "dogs": "3"}


class Site:
    """A service as a process of its own, which can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self.model, self.out = model_copy(folder), folder / "reviewed.csv"
        rows = [[text] for text in TRUTH]
        self.new = write_csv(folder / "new.csv", rows, ["text"])
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/"

    @contextmanager
    def running(self) -> Iterator[Any]:
        files = ("--review", self.new, "--reviewed", self.out)
        program = spawn(
            "serve", self.model, *files, "--port", self.port, "--json", "--threads", 1
        )
        try:
            assert program.stdout is not None
            assert program.stderr is not None
            started = json.loads(program.stdout.readline())
            assert started["url"] == self.url
            yield program
        finally:
            program.kill()
            program.wait()
            for stream in (program.stdout, program.stderr):
                if stream is not None:
                    stream.close()

    @contextmanager
    def in_process(self) -> Iterator[None]:
        """Serve from a thread of this process, which starts sooner."""
        models = {"model": TextClassifier.load(self.model, "cpu")}
        files = ReviewFiles(self.new, self.out)
        desk = open_desk(files, {"model": self.model}, models)
        service = Service(models, Limits(), threads=1)
        with socket.create_server(("127.0.0.1", self.port)) as listener:
            app = create_app(service, desk=desk)
            server = uvicorn.Server(server_config(app, service))
            thread = threading.Thread(target=server.run, args=([listener],))
            thread.start()
            try:
                yield
            finally:
                server.should_exit = True
                thread.join()

    def decisions(self) -> list[dict[str, Any]]:
        lines = log_path(self.out).read_text().splitlines()
        return [json.loads(line) for line in lines]


def wait(driver: Any, script: str, *args: Any) -> Any:
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(driver, 20, 0.02).until(
        lambda it: it.execute_script(script, *args)
    )


SHOWN = """
const text = document.querySelector('.review-text')?.textContent;
const busy = document.querySelector('#panel-review').getAttribute('aria-busy');
return busy === null && text && text !== arguments[0] ? text : null"""


def shown(driver: Any, before: str = "") -> str:
    """Return the text to review, once it is another one than before."""
    return wait(driver, SHOWN, before)


def pressed(driver: Any) -> set[str]:
    script = """
      const given = document.querySelectorAll('.review-labels [aria-pressed=true]');
      return [...given].map((each) => each.dataset.label)"""
    return set(driver.execute_script(script))


def send(driver: Any, keys: str) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    ActionChains(driver).send_keys(keys).perform()


def review(driver: Any, text: str) -> str:
    """Give the text shown its true label by keys, and return the next text."""
    for name in sorted(pressed(driver) ^ {TRUTH[text]}):
        send(driver, KEY[name])
    assert pressed(driver) == {TRUTH[text]}
    send(driver, "\ue007")  # Enter
    return shown(driver, text)


def test_twenty_texts_by_keyboard_lose_nothing(
    browser: Any,
    tmp_path: Path,
) -> None:
    site = Site(tmp_path)
    set_view(browser, DESKTOP)
    with site.running():
        browser.get(site.url)
        text = shown(browser)
        for _ in range(7):
            text = review(browser, text)
        # Loaded again in the middle of a text: the same text, nothing lost.
        send(browser, "1")
        browser.get("about:blank")
        browser.get(site.url)
        assert shown(browser) == text
        # A second tab decides some; the first one, back in front, goes on after them.
        first = browser.current_window_handle
        browser.switch_to.new_window("tab")
        browser.get(site.url)
        text = shown(browser)
        for _ in range(4):
            text = review(browser, text)
        browser.close()
        browser.switch_to.window(first)
        browser.execute_script("window.dispatchEvent(new Event('focus'))")
        wait(browser, SHOWN.replace("!==", "==="), text)
        text = review(browser, text)
        # Skip and undo.
        send(browser, "s")
        shown(browser, text)
        send(browser, "u")
        assert shown(browser, "") == wait(browser, SHOWN.replace("!==", "==="), text)
    # Killed. What cannot be saved is said, and still there to be saved later.
    assert complaints(browser) == []
    decided = sum(each["action"] == "label" for each in site.decisions())
    assert decided == 12
    for name in sorted(pressed(browser) ^ {TRUTH[text]}):
        send(browser, KEY[name])
    send(browser, "\ue007")
    wait(browser, "return document.querySelector('.review-fault').textContent")
    assert shown(browser) == text
    assert pressed(browser) == {TRUTH[text]}
    complaints(browser)  # the refused connection
    with site.in_process():
        send(browser, "\ue007")
        text = shown(browser, text)
        for _ in range(7):
            text = review(browser, text)
        estimate = browser.find_element("css selector", ".review-estimate").text
        assert "all labels right in" in estimate
        before = TextClassifier.load(site.model, "cpu").labels.thresholds
        browser.find_element("css selector", ".review-recalibrate").click()
        wait(
            browser,
            "return /thresholds/.test(document.querySelector('.review-status')"
            ".textContent)",
        )
        after = TextClassifier.load(site.model, "cpu").labels.thresholds
        status = browser.find_element("css selector", ".review-status").text
        assert (after != before) == status.startswith("New thresholds from 20")
        assert browser.title == "textcapsules"
        assert complaints(browser) == []
    labels = {
        each["text"]: each["labels"]
        for each in site.decisions()
        if each["action"] == "label"
    }
    assert len(labels) == 20
    assert all(labels[text] == [TRUTH[text]] for text in labels)


def test_it_is_accessible_dark_and_narrow(
    browser: Any,
    tmp_path: Path,
) -> None:
    site = Site(tmp_path)
    with site.in_process():
        set_view(browser, PHONE, dark=True)
        browser.get(site.url)
        text = shown(browser)
        assert overflow(browser) <= 0
        given = pressed(browser)
        toggles = browser.find_elements("css selector", ".review-labels button")
        toggles[0].click()
        assert pressed(browser) == given ^ {"birds"}
        send(browser, " ")  # the toggle has kept the focus
        assert pressed(browser) == given
        send(browser, "\ue007")  # and Enter accepts, rather than toggles
        shown(browser, text)
        assert set(site.decisions()[0]["labels"]) == given
        status = browser.find_element("css selector", ".review-status")
        assert status.get_attribute("role") == "status"
        assert status.text.startswith("Saved: ")
        # What is reviewed can be downloaded; the click is kept from the browser.
        browser.execute_script(
            "HTMLAnchorElement.prototype.click = function () { window.saved = this }"
        )
        browser.find_element("css selector", ".review-export").click()
        assert wait(browser, "return window.saved?.download") == "reviewed.csv"
        # In the dark, the text is light on dark.
        colours = browser.execute_script(
            "const style = getComputedStyle(document.querySelector('.review-text'));"
            "return [style.color, style.backgroundColor].map("
            "(each) => each.match(/[0-9.]+/g).slice(0, 3)"
            ".reduce((sum, part) => sum + Number(part), 0))"
        )
        assert colours[0] > colours[1] + 200
        assert complaints(browser) == []
    set_view(browser, DESKTOP)
