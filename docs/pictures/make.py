"""Makes the pictures of README.md, docs/gallery.md and docs/serving.md.

    .venv/bin/python docs/pictures/make.py

They come from the model of `make demo`. `--only page` makes those of the web page.

Every picture is a part of a page that the package writes, as a headless Chromium shows
it. Needs chromium and chromedriver, and the packages of `make test`.
"""

import argparse
import base64
import csv
import io
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

from PIL import Image

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from browser_driver import open_browser  # noqa: E402

TWO_LABELS = (
    "You charged my card twice this month, and the app crashes as soon as I open it."
)
THREE_LABELS = (
    "The share button does not react and then an error box pops up. Unrelated, but I "
    "paid for express, yet the headset is still in your warehouse. I vote for a "
    "template gallery on the roadmap."
)
MISSED = (
    "It would be great if you added a dark mode. By the way, the charger gets very hot."
)
COMPLAINT = (
    "Hi team, I was charged twice for my subscription this month. Also, since the last "
    "update the app crashes as soon as I open the settings. Please have a look."
)
SENTENCES = (
    "You charged my card twice this month.",
    "The app crashes as soon as I open it.",
    "I cannot log in, the reset link never arrives.",
    "The parcel still has not arrived.",
    "My notes are not syncing between phone and laptop.",
    "It would be great if you added a dark mode.",
    "Please cancel my subscription.",
    "I want to send the headset back for a refund.",
    "Everything has become very slow.",
    "The charger gets very hot.",
    "Delete all my personal data, please.",
    "How long should sourdough rest in the fridge?",
)
UNKNOWN = "The blorf wug zonk fnarg quib drell mox."


def main() -> None:
    """Write every picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--demo", type=Path, default=ROOT / "runs/demo")
    parser.add_argument("--only", choices=["all", "page"], default="all")
    asked = parser.parse_args()
    demo = asked.demo.resolve()
    with open_browser() as driver:
        with serve(demo / "model") as address:
            take_page(driver, address)
        if asked.only == "all":
            take_pages_written(driver, demo)


def take_page(driver: Any, address: str) -> None:
    """Take the web page: a text with several labels, a label not given, a file."""
    show_text(driver, address, COMPLAINT, 1280)
    save(driver, "page", "#content")
    driver.find_element("css selector", ".other-labels .pick").click()
    save(driver, "page-why-not", "#texts .why-not")
    show_text(driver, address, COMPLAINT, 1280, dark=True)
    save(driver, "page-dark", "#content")
    show_text(driver, address, TWO_LABELS, 390)
    save(driver, "page-phone", "#texts .work", most=640)
    show_text(driver, address, "", 1280)
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder, "tickets.csv")
        write_table(table)
        driver.find_element("css selector", "#tab-file").click()
        driver.find_element("css selector", "#file").send_keys(str(table))
        wait(driver, "return !document.getElementById('table-options').hidden")
        driver.find_element("css selector", "#label-rows").click()
        wait(driver, "return !document.getElementById('results').hidden")
    save(driver, "page-file", "#results-title, #totals, .found", most=620)


def show_text(
    driver: Any, address: str, text: str, width: int, *, dark: bool = False
) -> None:
    """Open the page with a text and wait for its answer."""
    driver.get("about:blank")
    show(driver, f"{address}#text={quote_plus(text)}", width, dark=dark)
    answered = """return document.querySelector('#texts .answer')?.textContent
        && !document.querySelector('#texts [aria-busy]')"""
    wait(driver, answered)


def write_table(path: Path) -> None:
    """Write some hundred made-up tickets, of one to three sentences."""
    draw = random.Random(1)
    with path.open("w", newline="", encoding="utf-8") as stream:
        table = csv.writer(stream)
        table.writerow(["id", "text"])
        for number in range(400):
            sentences = draw.sample(SENTENCES, draw.choice([1, 1, 2, 2, 3]))
            table.writerow([number + 1, " ".join(sentences)])


def take_pages_written(driver: Any, demo: Path) -> None:
    """Take the pages that `explain` and `report` write."""
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder, "page.html")

        def explain(*texts: str) -> str:
            run("explain", demo / "model", *texts, "--out", page)
            return page.as_uri()

        def take(
            name: str, address: str, parts: str, *, width: int = 760, dark: bool = False
        ) -> None:
            show(driver, address, width, dark=dark)
            save(driver, name, parts)

        take("explanation", explain(TWO_LABELS, THREE_LABELS), ".cards")
        take("dark", page.as_uri(), ".cards", dark=True)
        take("limits", explain(MISSED, UNKNOWN), ".cards")
        take("strengths", explain(THREE_LABELS), "#strengths ~ *")
        report = (demo / "report.html").as_uri()
        take("labels", report, "#labels ~ ul > li:nth-child(-n+6)", width=1000)
        take("faithfulness", report, "#faithfulness ~ .pair > *", width=1000)


def run(*words: object) -> None:
    """Run the command line."""
    command = [sys.executable, "-c", "from textcapsules.cli import main; main()"]
    more = [str(word) for word in (*words, "--overwrite")]
    subprocess.run([*command, *more], check=True, stdout=subprocess.DEVNULL)


@contextmanager
def serve(model: Path) -> Iterator[str]:
    """Serve a model at the address that is yielded."""
    code = "from textcapsules.cli import main; main()"
    command = [sys.executable, "-c", code, "serve", str(model), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        address = re.search(r"http://[\d.:]+", server.stdout.readline())
        assert address is not None, "serve must print its address"
        try:
            yield f"{address[0]}/"
        finally:
            server.terminate()


def show(driver: Any, address: str, width: int, *, dark: bool = False) -> None:
    """Open a page at a width, light or dark, with enough pixels for sharp text."""
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1.5, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    driver.get(address)


def wait(driver: Any, script: str) -> None:
    """Wait until a script returns something true."""
    from selenium.webdriver.support.wait import WebDriverWait

    WebDriverWait(driver, 30).until(lambda driver: driver.execute_script(script))


def save(driver: Any, name: str, selector: str, *, most: float | None = None) -> None:
    """Write a picture of the parts that a selector names, with a little around them.

    It is cut below the first `most` pixels.
    """
    boxes: Sequence[dict[str, float]] = [
        element.rect for element in driver.find_elements("css selector", selector)
    ]
    assert boxes, f"{selector} must name a part of the page"
    left = max(0, min(box["x"] for box in boxes) - 12)
    top = max(0, min(box["y"] for box in boxes) - 12)
    right = max(box["x"] + box["width"] for box in boxes) + 12
    bottom = max(box["y"] + box["height"] for box in boxes) + 12
    bottom = bottom if most is None else min(bottom, top + most)
    clip = {"x": left, "y": top, "width": right - left, "height": bottom - top}
    taken = driver.execute_cdp_cmd(
        "Page.captureScreenshot",
        {"captureBeyondViewport": True, "clip": {**clip, "scale": 1}},
    )
    picture = Image.open(io.BytesIO(base64.b64decode(taken["data"]))).convert("RGB")
    # Few colours are enough for text, and make the file a third as large.
    picture.quantize(255).save(FOLDER / f"{name}.png", optimize=True)


if __name__ == "__main__":
    main()
