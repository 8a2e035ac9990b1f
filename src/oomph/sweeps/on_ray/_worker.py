"""A cell on a Ray worker."""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from .._queue import CellTask
from .._result import CellResult, Status

THREADS = "OMP_NUM_THREADS"
_POLL_SECONDS = 0.1


def run_on_worker(task: CellTask, folder: Path, threads: str | None) -> CellResult:
    """Run a cell from a Ray worker until it ends, or the worker is interrupted or dies.

    Args:
        task: The cell to run.
        folder: The folder of the cell's files.
        threads: The sweep's own OMP_NUM_THREADS: Ray sets it to 1, which would slow the command down.
    """
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(  # noqa: S603  our own interpreter and module
            [sys.executable, "-m", f"{__package__}._cell_process"],
            stdin=subprocess.PIPE,
            stdout=output,
            env=_environment(threads),
            start_new_session=True,  # Ctrl-C in the terminal is for the sweep, which then interrupts this worker
        )
        assert process.stdin is not None  # noqa: S101  for the type checker
        try:
            with contextlib.suppress(BrokenPipeError):  # it was killed at once
                process.stdin.write(pickle.dumps((task, folder)))
                process.stdin.flush()
            # Ray's interruption is an exception in this thread, which a wait in the kernel would delay.
            while process.poll() is None:
                time.sleep(_POLL_SECONDS)
        finally:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
            process.wait()
        output.seek(0)
        content = output.read()
    if not content:
        return CellResult(task.cell, Status.KILLED, why="its process on a Ray worker was killed")
    result: CellResult | Exception = pickle.loads(content)  # noqa: S301  our own bytes
    if isinstance(result, Exception):
        raise result
    return result


def _environment(threads: str | None) -> dict[str, str]:
    environment = {name: text for name, text in os.environ.items() if name != THREADS}
    return environment if threads is None else {**environment, THREADS: threads}
