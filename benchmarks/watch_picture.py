"""Picture of the screen of `oomph watch`, for documentation.

Run with `python benchmarks/watch_picture.py picture.svg [PID] [SECONDS]`. Watches a process, or the machine if PID is 0
or left out, for SECONDS (60) without a terminal, and writes the screen as an SVG file.
"""

from __future__ import annotations

import argparse
import asyncio
import re
from pathlib import Path

from oomph.report.watch._app import WatchApp

_SIZE = (120, 18)  # columns and lines


async def draw_picture(pid: int | None, seconds: float, size: tuple[int, int] = _SIZE) -> str:
    """Return the screen as SVG after watching for some seconds."""
    app = WatchApp(pid, interval=1.0, count=0)
    async with app.run_test(size=size) as pilot:
        await pilot.pause(seconds)
        title = "oomph watch" if pid is None else f"oomph watch {pid}"
        svg = app.export_screenshot(title=title)
        await pilot.press("q")
    return re.sub(r"@font-face\s*{.*?}", "", svg, flags=re.DOTALL)  # fonts that would be loaded from the network


def main() -> None:
    """Write the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("picture", type=Path, help="the SVG file")
    parser.add_argument("pid", type=int, nargs="?", default=0, help="the process; 0 is the machine")
    parser.add_argument("seconds", type=float, nargs="?", default=60.0)
    arguments = parser.parse_args()
    svg = asyncio.run(draw_picture(arguments.pid or None, arguments.seconds))
    arguments.picture.write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
