"""Picture of the screen of `oomph watch`, for documentation.

Run with `python benchmarks/watch_picture.py picture.svg [PID] [SECONDS]`. Watches a process, or the machine if PID is 0
or left out, for SECONDS (60) without a terminal, and writes the screen as an SVG file.
"""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

from oomph.report.watch._app import WatchApp

_SIZE = (120, 26)  # columns and lines


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
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    pid = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    seconds = float(sys.argv[3]) if len(sys.argv) > 3 else 60.0
    Path(sys.argv[1]).write_text(asyncio.run(draw_picture(pid or None, seconds)), encoding="utf-8")


if __name__ == "__main__":
    main()
