"""The process table, for tests that nothing is left running."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import psutil

SCRIPT = Path(__file__).with_name("cell_script.py")


def processes_with(text: str) -> list[str]:
    """Return the command lines of living processes with a text in their arguments or environment."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            line = " ".join(process.cmdline())
            environment = process.environ().get("OOMPH_SWEEP_CELL", "")
            if process.status() != psutil.STATUS_ZOMBIE and (text in line or text in environment):
                found.append(line)
    return found


def wait_until_gone(text: str, seconds: float = 5.0) -> list[str]:
    """Return the processes with a text that are left after some seconds."""
    deadline = time.monotonic() + seconds
    while (left := processes_with(text)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left
