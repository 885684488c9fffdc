"""A headless Chromium for the tests that look at a page, and a parser for what a page would load."""

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from typing import Any

_FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-dev-shm-usage --hide-scrollbars"
)


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser that keeps what its console says, closed in the end."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    with tempfile.TemporaryDirectory() as profile:
        for flag in [*_FLAGS.split(), f"--user-data-dir={profile}"]:
            options.add_argument(flag)
        browser = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
        try:
            yield browser
        finally:
            browser.quit()


def width_of(browser: Any, width: int) -> None:
    """Make the window's inside `width` pixels wide."""
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    """Wait for something to become true, `seconds` at most; the caller asserts it."""
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.1)


class Links(HTMLParser):
    """Everything in a page that would load something, and all its tags."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[tuple[str, str, str | None]] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.loads += [
            (tag, name, value) for name, value in attrs if name in ("src", "href", "srcset", "data", "action", "poster")
        ]
