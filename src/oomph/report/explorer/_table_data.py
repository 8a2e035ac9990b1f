"""The table of predictions as the page's script reads it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ...planner import PEAK_KINDS, PredictionTable
from ...prediction import OVERLAP_EXPONENT

_KIND_NAMES = {
    "parameter": "weights",
    "buffer": "buffers",
    "gradient": "gradients",
    "input": "the batch",
    "saved activation": "saved activations",
    "temporary": "intermediate results",
    "workspace": "workspaces of libraries",
}


def table_data(table: PredictionTable) -> dict[str, Any]:
    """Return the table as JSON-ready values."""
    choices = {
        name: [{"name": choice.name, "problem": choice.problem} for choice in getattr(table, name)]
        for name in ("precisions", "checkpointings", "optimizers")
    }
    size = table.settings.size
    # Precisions that allocate alike share their grids: the page has each of them once.
    grids = {id(grid): grid for steps in table.steps.values() for grid in (steps.alone, steps.accumulating)}.values()
    numbers = {id(grid): number for number, grid in enumerate(grids)}
    return {
        **choices,
        "devices": [asdict(device) for device in table.devices],
        "samples": table.samples.values,
        "sizes": table.sizes.values,
        "sizes_problem": table.sizes.problem,
        "size_text": f"{size[0]}x{size[1]}" if isinstance(size, tuple) else str(size or "none"),
        "kinds": [_KIND_NAMES.get(kind, kind) for kind in PEAK_KINDS],
        "grids": [[[[need.reserved, *need.kinds] for need in row] for row in grid] for grid in grids],
        "steps": {
            key: {
                "alone": numbers[id(steps.alone)],
                "accumulating": numbers[id(steps.accumulating)],
                "low": steps.low,
                "high": steps.high,
                "launching": steps.launching,
                "launching_sums": steps.launching_sums,
            }
            for key, steps in table.steps.items()
        },
        "seconds": table.seconds,
        "sum_seconds": table.sum_seconds,
        "update_seconds": table.update_seconds,
        "update_launching": table.update_launching,
        "overlaps": table.overlaps,
        "overlap_exponent": OVERLAP_EXPONENT,
        "time_range": table.time_range,
        "outside_name": "CUDA context" if table.overlaps else "Python and torch",
    }
