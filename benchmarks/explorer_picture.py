"""Make the picture of docs/plan.md: `python benchmarks/explorer_picture.py`.

Needs Chromium and the development packages, and one to two minutes for the predictions.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from oomph.cli import run

_PICTURE = Path(__file__).parent.parent / "docs" / "plan-explorer.png"
_STYLE = """
.modebar, details, footer, .purpose, .command, header .faint { display: none !important }
body { padding-bottom: 0 }
main > section:last-of-type { display: none }
"""


def main() -> None:
    """Write docs/plan-explorer.png."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page = Path(folder) / "plan.html"
        run(["plan", "yolov5s", "--batch", "64", "--gpu", "RTX 3060", "--html", str(page)])
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": 1100, "height": 700}, color_scheme="light")
        tab.goto(page.absolute().as_uri())
        tab.add_style_tag(content=_STYLE)
        tab.wait_for_selector("#front .main-svg")
        tab.wait_for_timeout(500)
        tab.screenshot(path=_PICTURE, full_page=True)
        browser.close()


if __name__ == "__main__":
    main()
