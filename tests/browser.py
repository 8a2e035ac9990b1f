"""A real browser for tests of pages: Chromium, driven by Playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

_PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "chrome")
# As root, Chromium has no sandbox; without the others it tries to reach its maker.
_ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")


@dataclass
class OpenedPage:
    """A page in the browser, and what it did that a page must not do.

    Attributes:
        page: Playwright's page.
        problems: messages of its console, errors, dialogs, and requests other than for the page itself.
    """

    page: Any
    problems: list[str] = field(default_factory=list)


@contextmanager
def chromium() -> Iterator[Any]:
    """Start Chromium; skip the test if this machine has none."""
    program = next(filter(None, map(shutil.which, _PROGRAMS)), None)
    if program is None:
        pytest.skip("no Chromium on this machine: install the package chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(_ARGUMENTS))
        yield browser
        browser.close()


@contextmanager
def opened(browser: Any, file: Path, *, width: int = 1280, height: int = 900, **context: Any) -> Iterator[OpenedPage]:
    """Open a file without a network, and fail if it caused a problem.

    Args:
        browser: from `chromium`.
        file: the page.
        width: of the window; 360 is a phone.
        height: of the window.
        context: options of Playwright's context, such as `color_scheme="dark"`.
    """
    tab = browser.new_context(viewport={"width": width, "height": height}, offline=True, **context)
    page = tab.new_page()
    result = OpenedPage(page)
    address = file.absolute().as_uri()
    page.on("console", lambda message: result.problems.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: result.problems.append(f"error: {error}"))
    page.on("dialog", lambda dialog: _refuse_dialog(result, dialog))
    page.on("request", lambda request: _note_request(result, request.url, address))
    page.goto(address)
    yield result
    tab.close()
    assert result.problems == []


def _refuse_dialog(result: OpenedPage, dialog: Any) -> None:
    result.problems.append(f"dialog: {dialog.message}")
    dialog.dismiss()


def _note_request(result: OpenedPage, url: str, address: str) -> None:
    if url != address and not url.startswith(("data:", "blob:")):
        result.problems.append(f"request: {url}")
