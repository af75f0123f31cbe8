"""A headless Chromium for tests of pages: `open_browser`, and what they ask of it.

Tests that need one ask for the fixture `browser`, and are skipped with the reason where
there is no Chromium.
"""

import base64
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars",
)
DESKTOP, PHONE = (1280, 900), (390, 844)


def missing() -> str:
    """Say what a browser test lacks here, if anything."""
    try:
        import selenium  # noqa: F401
    except ImportError:
        return "selenium is not installed"
    absent = [name for name in ("chromium", "chromedriver") if not shutil.which(name)]
    return f"{' and '.join(absent)} not installed" if absent else ""


@contextmanager
def open_browser() -> Iterator[Any]:
    """Start Chromium with a profile of its own, and end it afterwards."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        service = Service(shutil.which("chromedriver"), log_output=os.devnull)
        driver = webdriver.Chrome(options, service)
        try:
            yield driver
        finally:
            driver.quit()


@pytest.fixture(scope="module")
def module_browser() -> Iterator[Any]:
    if reason := missing():
        pytest.skip(reason)
    with open_browser() as driver:
        yield driver


@pytest.fixture
def browser(module_browser: Any) -> Iterator[Any]:
    """One Chromium per module, on an empty page: none goes on asking an old service."""
    yield module_browser
    module_browser.get("about:blank")
    complaints(module_browser)


def set_view(driver: Any, size: tuple[int, int], *, dark: bool = False) -> None:
    """Show pages at a size (a narrow one as a phone does), light or dark."""
    width, height = size
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1}
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {**metrics, "mobile": width < 600}
    )
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})


def complaints(driver: Any) -> list[str]:
    """Return what the console has said since it was last asked."""
    return [entry["message"] for entry in driver.get_log("browser")]


def overflow(driver: Any) -> int:
    """Return by how many pixels the page is wider than the window.

    A phone zooms out from a page too wide for it, and its `innerWidth` grows with it.
    """
    return driver.execute_script(
        "const page = document.documentElement;"
        "return page.scrollWidth - Math.min(page.clientWidth, window.innerWidth)"
    )


def screenshot(driver: Any, path: Path | str) -> None:
    """Save a picture of the whole page."""
    taken = driver.execute_cdp_cmd(
        "Page.captureScreenshot", {"format": "png", "captureBeyondViewport": True}
    )
    Path(path).write_bytes(base64.b64decode(taken["data"]))
