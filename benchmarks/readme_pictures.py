"""Make the pictures of the README and of docs/report.md: `python benchmarks/readme_pictures.py`.

Needs Chromium and the development packages. The run is `examples/runs/shared-gpu`. The screen of `oomph watch` was
saved beside it while that run trained, by `benchmarks/shared_gpu.sh`.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from oomph.report import RunReport, write_page

_ROOT = Path(__file__).parent.parent
_DOCS, _RUN = _ROOT / "docs", _ROOT / "examples" / "runs" / "shared-gpu"
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
        page = Path(folder) / "report.html"
        write_page(RunReport.of([_RUN]), page, replace=True)
        _save_report(browser, page)
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
    tab = browser.new_page()
    tab.goto(svg.absolute().as_uri())
    width, height = tab.evaluate(
        "[document.documentElement.viewBox.baseVal.width, document.documentElement.viewBox.baseVal.height]"
    )
    tab.set_viewport_size({"width": round(width), "height": round(height)})
    tab.screenshot(path=_DOCS / "watch.png")


if __name__ == "__main__":
    main()
