"""The comparison of predicted with recorded snapshots."""

from __future__ import annotations

import copy
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from snapshots import allocations_of_steps, compare, config_of, read_by_torch

from oomph.machine import find_target
from oomph.prediction import memory_snapshot, trace_device
from oomph.trace import trace_step


@pytest.fixture(scope="module")
def snapshot() -> dict[str, Any]:
    config, target = config_of("mlp-fp32"), find_target("H200")
    return memory_snapshot(trace_step(config.job, config.settings, trace_device(target)), config.settings, target)


@pytest.mark.medium
def test_equal_snapshots_share_everything(snapshot: dict[str, Any]) -> None:
    result = compare(snapshot, snapshot)
    assert result["shared_at_peak"] == 1
    assert result["only_recorded"] == result["only_predicted"] == []
    for name in ("peak", "peak_of_blocks", "allocations", "peak_reserved", "segments", "segment_bytes"):
        recorded, predicted = result[name]
        assert recorded == predicted > 0
    assert not any(result["fields"].values())
    first, second, third = allocations_of_steps(snapshot)
    assert first > second == third  # the optimizer's state
    assert min(read_by_torch(snapshot).values()) > 100


@pytest.mark.medium
def test_differences_are_named(snapshot: dict[str, Any]) -> None:
    recorded = copy.deepcopy(snapshot)
    size = 3_000_000_000
    recorded["device_traces"][0].insert(0, {"action": "alloc", "addr": 1, "size": size, "frames": [], "extra": 1})
    result = compare(recorded, snapshot)
    assert result["only_recorded"] == [[-(-size // 512) * 512, 1]]
    assert result["peak"][0] - result["peak"][1] == size
    assert result["fields"]["entry"] == [
        "-extra",
        "+category",
        "+compile_context",
        "+stream",
        "+time_us",
        "+user_metadata",
    ]
