"""Compares predictions with what was measured, and prints the table of docs/accuracy.md.

python benchmarks/compare.py predicted.json benchmarks/results/memory-h200-2026-11-15.jsonl
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any


def percent(predicted: float, measured: float) -> float:
    """How far a prediction is off, in percent of what was measured."""
    return 100 * (predicted / measured - 1)


def rows(predicted: dict[str, Any], truths: list[dict[str, Any]], allocator: str) -> list[dict[str, Any]]:
    """One row a configuration."""
    return [
        {
            "name": truth["name"],
            "measured": truth["allocated"],
            "allocated": percent(predicted[truth["name"]][allocator]["allocated"], truth["allocated"]),
            "needed": percent(predicted[truth["name"]][allocator]["needed"], truth["needed"]),
            "high": percent(predicted[truth["name"]][allocator]["needed_high"], truth["needed"]),
        }
        for truth in truths
        if truth["allocator"] == allocator and truth["name"] in predicted
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
    truths = [json.loads(line) for line in Path(sys.argv[2]).read_text().splitlines()]
    for allocator in ("expandable", "default"):
        print(f"{allocator}: {summary(rows(predicted, truths, allocator))}\n")
    print("| configuration | measured | allocated | needed | high of needed |\n|---|---|---|---|---|")
    for row in rows(predicted, truths, "expandable"):
        size = f"{row['measured'] / 1024**2:,.0f} MiB"
        figures = " | ".join(f"{row[key]:+.2f} %" for key in ("allocated", "needed", "high"))
        print(f"| {row['name']} | {size} | {figures} |")


if __name__ == "__main__":
    main()
