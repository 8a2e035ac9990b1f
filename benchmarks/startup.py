"""Times the start of the command line: a bare interpreter, `import oomph`, `oomph --help` and `oomph doctor`.

Run with `make bench`. Prints one JSON document with the medians of several new processes.
"""

from __future__ import annotations

import json
import platform
import statistics
import subprocess
import sys
import time

_RUNS = 15
_CASES = {
    "bare interpreter": ["-c", "pass"],
    "import oomph": ["-c", "import oomph"],
    "oomph --help": ["-m", "oomph", "--help"],
    "oomph doctor": ["-m", "oomph", "doctor"],
}
_MAX_HELP_SECONDS = 0.5


def time_process(arguments: list[str]) -> float:
    """Return the wall time of a new interpreter."""
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
    return time.perf_counter() - start


def main() -> None:
    """Time the cases in turn, so that a busy moment affects all of them."""
    seconds: dict[str, list[float]] = {name: [] for name in _CASES}
    for _ in range(_RUNS):
        for name, arguments in _CASES.items():
            seconds[name].append(time_process(arguments))
    medians = {name: round(statistics.median(times), 4) for name, times in seconds.items()}
    print(json.dumps({"python": platform.python_version(), "runs": _RUNS, "median seconds": medians}, indent=2))
    if medians["oomph --help"] > _MAX_HELP_SECONDS:
        sys.exit(f"oomph --help took {medians['oomph --help']} s, more than {_MAX_HELP_SECONDS} s")


if __name__ == "__main__":
    main()
