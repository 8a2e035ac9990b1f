"""A process between a Ray worker and the supervisor of its cell: `python -m oomph.sweeps.on_ray._cell_process`.

A Ray worker that ends kills its children, but not theirs: if the supervisor were one, its command would go on. This
process is one instead. When it is killed, or its worker is gone, the standard input of the supervisor ends, and the
supervisor kills the cell.

It reads a pickled task and folder from its standard input, whose end means stop, and writes the pickled result, or the
error, to its standard output.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading

from .._queue import run_task
from .._result import CellResult


def main() -> None:
    """Run the cell and write its result."""
    # Ray blocks Ctrl-C in its processes, and the command would inherit that.
    if hasattr(signal, "pthread_sigmask"):  # not on Windows
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    source, stop = sys.stdin.buffer, threading.Event()
    task, folder = pickle.load(source)  # noqa: S301  our own bytes

    def wait_for_worker() -> None:
        source.read()
        stop.set()

    threading.Thread(target=wait_for_worker, daemon=True).start()
    result: CellResult | Exception
    try:
        result = run_task(task, folder, stop=stop)
    except Exception as error:  # noqa: BLE001  raised again in the worker
        result = error
    sys.stdout.buffer.write(pickle.dumps(result))
    sys.stdout.flush()
    os._exit(0)  # the thread holds the lock of the standard input, and a normal exit would abort


if __name__ == "__main__":
    main()
