"""Compare predictions with measurements and print the table of docs/accuracy.md.

python benchmarks/compare.py predicted.json
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "src")]


def error_percent(predicted: float, measured: float) -> float:
    """Return the error of a prediction in percent of the measured value."""
    return 100 * (predicted / measured - 1)


def compare(predicted: dict[str, Any], allocator: str) -> list[dict[str, Any]]:
    """Return one row of errors per configuration."""
    from zoo import measurements

    return [
        {
            "name": name,
            "measured": measured["allocated"],
            "allocated": error_percent(predicted[name][allocator]["allocated"], measured["allocated"]),
            "needed": error_percent(predicted[name][allocator]["needed"], measured["needed"]),
            "needed_high": error_percent(predicted[name][allocator]["needed_high"], measured["needed"]),
        }
        for name, measured in measurements(allocator).items()
        if name in predicted
    ]


def summary(rows: list[dict[str, Any]]) -> str:
    """Return the most important numbers in one line."""
    errors = sorted(abs(row["allocated"]) for row in rows)
    highs = [row["needed_high"] for row in rows]
    return (
        f"{len(rows)} configurations | median {statistics.median(errors):.3f} % | "
        f"95th percentile {errors[int(0.95 * len(errors))]:.2f} % | largest {errors[-1]:.2f} % | "
        f"high of needed above the smallest cap: median {statistics.median(highs):.1f} %, "
        f"largest {max(highs):.1f} %, smallest {min(highs):.1f} %"
    )


def main() -> None:
    """Print the summaries of both allocators and the table of expandable segments."""
    predicted = json.loads(Path(sys.argv[1]).read_text())
    for allocator in ("expandable", "default"):
        print(f"{allocator}: {summary(compare(predicted, allocator))}\n")
    print("| configuration | measured | allocated | needed | high of needed |\n|---|---|---|---|---|")
    for row in compare(predicted, "expandable"):
        size = f"{row['measured'] / 1024**2:,.0f} MiB"
        errors = " | ".join(f"{row[key]:+.2f} %" for key in ("allocated", "needed", "needed_high"))
        print(f"| {row['name']} | {size} | {errors} |")


if __name__ == "__main__":
    main()
