"""The table of predictions as the page's script reads it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ...planner import PEAK_KINDS, PredictionTable
from ...prediction import OVERLAP_EXPONENT
from ...trace import StorageKind

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
    return {
        **choices,
        "devices": [asdict(device) for device in table.devices],
        "samples": table.samples.values,
        "sizes": table.sizes.values,
        "sizes_problem": table.sizes.problem,
        "size_text": f"{size[0]}x{size[1]}" if isinstance(size, tuple) else str(size or "none"),
        "kinds": [_KIND_NAMES.get(kind, kind) for kind in PEAK_KINDS],
        "states_kind": PEAK_KINDS.index(StorageKind.STATE.value),
        "passes": {key: asdict(passes) for key, passes in table.passes.items()},
        "updates": {key: asdict(update) for key, update in table.updates.items()},
        "seconds": table.seconds,
        "sum_seconds": table.sum_seconds,
        "update_seconds": table.update_seconds,
        "overlaps": table.overlaps,
        "overlap_exponent": OVERLAP_EXPONENT,
        "time_range": table.time_range,
        "outside_name": "CUDA context" if table.overlaps else "Python and torch",
    }
