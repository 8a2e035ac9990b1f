"""Time for 100 MB of output through `oomph run`, beside `tee`, which writes a copy, too, and `cat`, which doesn't.

    python benchmarks/command_output.py

It is the time from the first to the last byte, the fastest of nine in turns.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SIZE = 100_000_000
ROUNDS = 9


def receive(argv: list[str], folder: Path) -> float:
    """Return the seconds in which a command's output arrives."""
    reader, writer = os.pipe()
    with subprocess.Popen(argv, cwd=folder, stdout=writer, stderr=subprocess.DEVNULL):
        os.close(writer)
        os.read(reader, 1)
        start = time.perf_counter()
        while os.read(reader, 1 << 20):
            pass
        seconds = time.perf_counter() - start
    os.close(reader)
    return seconds


def main() -> None:
    """Print the times."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "data").write_bytes(os.urandom(1_000_000) * (SIZE // 1_000_000))
        commands = {
            "cat": ["sh", "-c", "cat data | cat"],
            "tee": ["sh", "-c", "cat data | tee copy"],
            "oomph run": [sys.executable, "-m", "oomph", "run", "--", "cat", "data"],
        }
        times: dict[str, list[float]] = {title: [] for title in commands}
        for _ in range(ROUNDS):
            for title, argv in commands.items():
                times[title].append(receive(argv, folder))
    for title, seconds in times.items():
        print(f"{title:10} {min(seconds):.2f} s")


if __name__ == "__main__":
    main()
