"""Measurements of the zoo: every `memory-*.jsonl` in the results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "results"


def measurements(allocator: str = "expandable") -> dict[str, dict[str, Any]]:
    """Return the latest measurement of each configuration, by name."""
    files = sorted(RESULTS.glob("memory-*.jsonl"))
    rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    return {row["name"]: row for row in rows if row["allocator"] == allocator and "error" not in row}
