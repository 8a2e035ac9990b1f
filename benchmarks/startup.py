"""How long the command line takes to start: a bare interpreter, `import oomph`, `oomph --help`, `oomph doctor`.

Run with `make bench`. Prints one JSON document; each figure is the median of several fresh processes.
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
_HELP_LIMIT = 0.5


def seconds(arguments: list[str]) -> float:
    """Wall time of one fresh interpreter."""
    began = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
    return time.perf_counter() - began


def main() -> None:
    """Measure the cases in turn, so that a busy moment hits all of them."""
    taken: dict[str, list[float]] = {name: [] for name in _CASES}
    for _ in range(_RUNS):
        for name, arguments in _CASES.items():
            taken[name].append(seconds(arguments))
    medians = {name: round(statistics.median(times), 4) for name, times in taken.items()}
    print(json.dumps({"python": platform.python_version(), "runs": _RUNS, "median seconds": medians}, indent=2))
    if medians["oomph --help"] > _HELP_LIMIT:
        sys.exit(f"oomph --help took {medians['oomph --help']} s, more than {_HELP_LIMIT} s")


if __name__ == "__main__":
    main()
