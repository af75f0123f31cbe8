"""Makes the pictures of README.md and docs/gallery.md, from the model of `make demo`.

    .venv/bin/python docs/pictures/make.py

Every picture is a part of a page that the package writes, as a headless Chromium shows
it. Needs chromium and chromedriver, and the packages of `make test`.
"""

import argparse
import base64
import io
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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
UNKNOWN = "The blorf wug zonk fnarg quib drell mox."


def main() -> None:
    """Write every picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--demo", type=Path, default=ROOT / "runs/demo")
    demo = parser.parse_args().demo.resolve()
    with open_browser() as driver, tempfile.TemporaryDirectory() as folder:
        page = Path(folder, "page.html")

        def explain(*texts: str, method: str = "couplings") -> str:
            run("explain", demo / "model", *texts, "--method", method, "--out", page)
            return page.as_uri()

        def take(
            name: str, address: str, parts: str, *, width: int = 760, dark: bool = False
        ) -> None:
            show(driver, address, width, dark=dark)
            save(driver, name, parts)

        take("explanation", explain(TWO_LABELS, THREE_LABELS), ".cards")
        take("dark", page.as_uri(), ".cards", dark=True)
        take("limits", explain(MISSED, UNKNOWN), ".cards")
        take("contributions", explain(TWO_LABELS, method="contributions"), ".cards")
        take("strengths", explain(THREE_LABELS), "#strengths ~ *")
        report = (demo / "report.html").as_uri()
        take("labels", report, "#labels ~ ul > li:nth-child(-n+6)", width=1000)
        take("faithfulness", report, "#faithfulness ~ .pair > *", width=1000)
        with serve(demo / "model") as address:
            show(driver, address, 1000)
            field = driver.find_element("css selector", "textarea")
            field.clear()
            field.send_keys(TWO_LABELS)
            wait_for(driver, TWO_LABELS[-20:])
            save(driver, "page", "article.card")


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


def wait_for(driver: Any, text: str) -> None:
    """Wait until the page highlights the phrases of a text that ends so."""
    from selenium.webdriver.support.wait import WebDriverWait

    marked = "return document.querySelector('.marked').textContent"
    WebDriverWait(driver, 30).until(
        lambda driver: driver.execute_script(marked).strip().endswith(text)
    )


def save(driver: Any, name: str, selector: str) -> None:
    """Write a picture of the parts that a selector names, with a little around them."""
    boxes: Sequence[dict[str, float]] = [
        element.rect for element in driver.find_elements("css selector", selector)
    ]
    assert boxes, f"{selector} must name a part of the page"
    left = min(box["x"] for box in boxes) - 12
    top = min(box["y"] for box in boxes) - 12
    right = max(box["x"] + box["width"] for box in boxes) + 12
    bottom = max(box["y"] + box["height"] for box in boxes) + 12
    clip = {"x": left, "y": top, "width": right - left, "height": bottom - top}
    taken = driver.execute_cdp_cmd(
        "Page.captureScreenshot",
        {"captureBeyondViewport": True, "clip": {**clip, "scale": 1}},
    )
    picture = Image.open(io.BytesIO(base64.b64decode(taken["data"]))).convert("RGB")
    # Few colours are enough for text, and make the file a third as large.
    picture.quantize(128).save(FOLDER / f"{name}.png", optimize=True)


if __name__ == "__main__":
    main()
