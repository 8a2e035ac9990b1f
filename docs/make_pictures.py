"""Make the pictures of the README from a real run: `python docs/make_pictures.py` in the repository's folder.

Needs Chromium and the development packages. The run is `examples/runs/shared-gpu`; the screen of `oomph watch` was saved
beside it as SVG while that run trained (`benchmarks/shared_gpu.py`).
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from oomph.report import RunReport, write_page

_DOCS = Path(__file__).parent
_RUN = _DOCS.parent / "examples" / "runs" / "shared-gpu"
# One picture shows the head and the chart of the GPU, another one the treemap.
_STYLE = """
section:not(#gpu):not(#composition), nav, details, .modebar, section > .scroll, section > p { display: none !important }
body { max-width: 1100px; padding-bottom: 0 }
footer { display: none }
"""


def main() -> None:
    """Write docs/report.png, docs/report-peak.png and docs/watch.png."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = write_page(RunReport.of([_RUN]), Path(folder) / "report.html", replace=True).page
        assert page is not None
        _save_report(browser, page)
        if (_RUN / "watch.svg").exists():
            _save_screen(browser, _RUN / "watch.svg")
        browser.close()


def _save_report(browser: Any, page: Path) -> None:
    tab = browser.new_page(viewport={"width": 1100, "height": 700}, color_scheme="light")
    tab.goto(page.absolute().as_uri())
    tab.add_style_tag(content=_STYLE)
    tab.wait_for_function("[...document.querySelectorAll('.plot')].every(plot => plot.querySelector('.main-svg'))")
    tab.wait_for_timeout(500)
    tab.locator("#peak").screenshot(path=_DOCS / "report-peak.png")
    tab.add_style_tag(content="#composition { display: none }")
    tab.screenshot(path=_DOCS / "report.png", full_page=True)


def _save_screen(browser: Any, svg: Path) -> None:
    tab = browser.new_page(viewport={"width": 1200, "height": 700}, device_scale_factor=1)
    tab.goto(svg.absolute().as_uri())
    tab.locator("svg").first.screenshot(path=_DOCS / "watch.png")


if __name__ == "__main__":
    main()
