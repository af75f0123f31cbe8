"""The browser of these tests."""

from browser_driver import browser

__all__ = ["browser"]
