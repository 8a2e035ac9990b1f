"""Compares predictions with what was measured, and prints the table of docs/accuracy.md.

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


def percent(predicted: float, measured: float) -> float:
    """How far a prediction is off, in percent of what was measured."""
    return 100 * (predicted / measured - 1)


def rows(predicted: dict[str, Any], allocator: str) -> list[dict[str, Any]]:
    """One row a configuration."""
    from zoo import truths

    return [
        {
            "name": name,
            "measured": truth["allocated"],
            "allocated": percent(predicted[name][allocator]["allocated"], truth["allocated"]),
            "needed": percent(predicted[name][allocator]["needed"], truth["needed"]),
            "high": percent(predicted[name][allocator]["needed_high"], truth["needed"]),
        }
        for name, truth in truths(allocator).items()
        if name in predicted
    ]


def summary(found: list[dict[str, Any]]) -> str:
    """The figures that matter, in one line."""
    errors = sorted(abs(row["allocated"]) for row in found)
    highs = [row["high"] for row in found]
    return (
        f"{len(found)} configurations | median {statistics.median(errors):.3f} % | "
        f"95th percentile {errors[int(0.95 * len(errors))]:.2f} % | largest {errors[-1]:.2f} % | "
        f"high of needed above the smallest cap: median {statistics.median(highs):.1f} %, "
        f"largest {max(highs):.1f} %, smallest {min(highs):.1f} %"
    )


def main() -> None:
    """Print both tables."""
    predicted = json.loads(Path(sys.argv[1]).read_text())
    for allocator in ("expandable", "default"):
        print(f"{allocator}: {summary(rows(predicted, allocator))}\n")
    print("| configuration | measured | allocated | needed | high of needed |\n|---|---|---|---|---|")
    for row in rows(predicted, "expandable"):
        size = f"{row['measured'] / 1024**2:,.0f} MiB"
        figures = " | ".join(f"{row[key]:+.2f} %" for key in ("allocated", "needed", "high"))
        print(f"| {row['name']} | {size} | {figures} |")


if __name__ == "__main__":
    main()
