"""Cost of the screen of `oomph watch`: CPU time, memory and start-up time, in a terminal of tmux.

Run with `python benchmarks/watch.py [SECONDS]`. Prints one JSON document. It watches the machine, then a process with
eight busy children, one of them writing a Record with 20 steps per second, each for SECONDS (60).
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import textual

_WARMUP_SECONDS = 3.0
_SIZE = ("-x", "120", "-y", "40")
_BUSY_TREE = """
import subprocess, sys, time
import oomph
code = "import time; data = bytearray(50 << 20)\\nwhile True: sum(range(20000)); time.sleep(0.05)"
children = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(8)]
with oomph.watch(sys.argv[1], interval=1) as record:
    print("ready", flush=True)
    for number in range(10**9):
        record.step({"step": number, "loss": 1 / (number + 1), "seconds": 0.05, "micro_batches": 2})
        time.sleep(0.05)
"""


def cost(arguments: list[str], seconds: float) -> dict[str, float]:
    """Return the cost of `oomph watch` with these arguments."""
    tmux = ["tmux", "-L", f"oomph-{os.getpid()}-{len(arguments)}"]
    command = [sys.executable, "-m", "oomph", "watch", *arguments]
    started = time.monotonic()
    subprocess.run([*tmux, "new-session", "-d", *_SIZE, *command], check=True)
    try:
        pid = subprocess.run([*tmux, "display-message", "-p", "#{pane_pid}"], capture_output=True, check=True).stdout
        process = psutil.Process(int(pid))
        while b"q quit" not in subprocess.run([*tmux, "capture-pane", "-p"], capture_output=True, check=True).stdout:
            time.sleep(0.01)
        startup = time.monotonic() - started
        startup_cpu = sum(process.cpu_times()[:2])
        time.sleep(_WARMUP_SECONDS)
        before, begin = process.cpu_times(), time.monotonic()
        time.sleep(seconds)
        after, end = process.cpu_times(), time.monotonic()
        cpu = after.user + after.system - before.user - before.system
        return {
            "percent of a core": round(100 * cpu / (end - begin), 2),
            "RSS in MiB": process.memory_info().rss >> 20,
            "seconds until the first screen": round(startup, 2),
            "CPU seconds until then": round(startup_cpu, 2),
        }
    finally:
        subprocess.run([*tmux, "kill-server"], check=False)


def main() -> None:
    """Measure both and print the document."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    if shutil.which("tmux") is None:
        sys.exit("tmux is not installed")
    with tempfile.TemporaryDirectory() as folder:
        tree = subprocess.Popen(
            [sys.executable, "-c", _BUSY_TREE, str(Path(folder) / "run.jsonl")], stdout=subprocess.PIPE
        )
        assert tree.stdout is not None  # noqa: S101  a pipe
        tree.stdout.readline()
        try:
            costs = {"the machine": cost([], seconds), "a busy tree": cost([str(tree.pid)], seconds)}
        finally:
            for child in psutil.Process(tree.pid).children():
                child.kill()
            tree.kill()
            tree.wait()
    versions = {"python": platform.python_version(), "textual": textual.__version__}
    sys.stdout.write(json.dumps({**costs, "processes": len(psutil.pids()), **versions}, indent=2) + "\n")


if __name__ == "__main__":
    main()
