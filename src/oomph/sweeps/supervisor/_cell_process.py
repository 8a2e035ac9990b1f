"""The supervisor of one cell, a process of its own: `python -m oomph.sweeps.supervisor._cell_process FOLDER`.

It runs the command of the folder's request, measures its process tree, enforces its limits and writes the outcome. A
line of JSON on its standard output reports a reading. When its standard input ends, the sweep has stopped or died: then
it kills the command and itself, and writes no outcome. It leads the session of all processes of the cell.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from ...errors import describe
from ...supervisor import adopt_orphans, descendants
from ._cell_files import LOG_FILE, CellOutcome, CellRequest, Limit, read_request, write_outcome
from ._memory_use import MemoryUse
from ._processes import CELL_MARK, kill_cell

_MIN_INTERVAL, _MAX_INTERVAL = 0.01, 0.1  # seconds between readings; shorter at first, for commands that end soon
_REPORT_INTERVAL = 0.25  # seconds between reports


class Supervisor:
    """Runs the command of a cell until it ends, exceeds a limit, or the sweep is gone."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._mark = folder, str(folder.absolute())
        self._request: CellRequest = read_request(folder)
        self._memory = MemoryUse(is_alone=self._request.is_alone)
        self._sweep_ended = threading.Event()
        self._start, self._next_report = time.monotonic(), 0.0

    def run(self) -> None:
        """Run the command and write the outcome, unless the sweep ended first."""
        adopt_orphans()
        # A sweep that is stopped by Ctrl-Z reads no reports, and the limits still count.
        if hasattr(os, "set_blocking"):  # on Windows since Python 3.12
            os.set_blocking(sys.stdout.fileno(), False)
        threading.Thread(target=self._wait_for_sweep, daemon=True).start()
        try:
            outcome = self._supervise()
        finally:
            kill_cell(self._mark, os.getpid())
            self._memory.close()
        if outcome is None:
            self._kill_group()
        else:
            write_outcome(self._folder, outcome)

    def _wait_for_sweep(self) -> None:
        with contextlib.suppress(OSError):
            while os.read(sys.stdin.fileno(), 1):
                pass
        self._sweep_ended.set()

    def _supervise(self) -> CellOutcome | None:
        with (self._folder / LOG_FILE).open("wb") as log:
            try:
                process = subprocess.Popen(  # noqa: S603  the user's own command, without a shell
                    self._request.argv,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd=self._request.cwd,
                    env={**os.environ, **self._request.env, CELL_MARK: self._mark},
                )
            except (OSError, ValueError) as error:
                return CellOutcome(start_error=describe(error), seconds=self._seconds)
        exceeded = self._watch(process)
        seconds = self._seconds
        process.kill()  # does nothing if it has ended
        code = process.wait()
        if self._sweep_ended.is_set():
            return None
        self._memory.add_peak_of_children()
        return CellOutcome(
            exit_code=code if code >= 0 else None,
            signal=-code if code < 0 else None,
            exceeded=exceeded,
            host_peak=self._memory.host_peak or None,
            gpu_peak=self._memory.gpu_peak,
            seconds=round(seconds, 3),
        )

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self._start

    def _watch(self, process: subprocess.Popen[bytes]) -> Limit | None:
        """Return when the command has ended, a limit is exceeded, or the sweep is gone."""
        while not self._sweep_ended.is_set():
            self._memory.read(descendants(os.getpid()))
            self._report()
            exceeded = self._exceeded()
            if exceeded is not None:
                return exceeded
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(min(max(self._seconds / 4, _MIN_INTERVAL), _MAX_INTERVAL))
                return None
        return None

    def _exceeded(self) -> Limit | None:
        limits = self._request.limits
        if limits.host is not None and self._memory.host > limits.host:
            return Limit.HOST
        if limits.gpu is not None and (self._memory.gpu or 0) > limits.gpu:
            return Limit.GPU
        if limits.seconds is not None and self._seconds > limits.seconds:
            return Limit.TIME
        return None

    def _report(self) -> None:
        if self._seconds < self._next_report:
            return
        self._next_report = self._seconds + _REPORT_INTERVAL
        reading = {"seconds": round(self._seconds, 1), "host": self._memory.host, "gpu": self._memory.gpu}
        with contextlib.suppress(OSError):  # the sweep is stopped or gone
            os.write(sys.stdout.fileno(), json.dumps(reading).encode() + b"\n")

    @staticmethod
    def _kill_group() -> None:
        """Kill the rest of the group and this process at once."""
        if hasattr(os, "killpg") and os.getpgrp() == os.getpid():
            os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    Supervisor(Path(sys.argv[1])).run()
