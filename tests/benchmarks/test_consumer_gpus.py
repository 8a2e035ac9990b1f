"""The comparison with public runs on consumer GPUs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

REPO = Path(__file__).parents[2]
sys.path.append(str(REPO / "benchmarks"))

from consumer_gpus import TRANSFORMERS, VISION, constants, contradictions, errors, inside, read_runs  # noqa: E402


def row(reserved: int, peak: int, **changes: Any) -> dict[str, Any]:
    bounds = {"low": reserved * 0.85, "value": reserved, "high": reserved * 1.15}
    return {"gpu": "RTX 3060", "reserved": bounds, "peak": peak, **changes}


def test_every_run_has_a_model_and_a_gpu_of_the_catalog() -> None:
    from oomph.machine import find_target

    runs = read_runs()
    assert len(runs) == 63
    assert {run.model for run in runs} == {*VISION, *TRANSFORMERS}
    assert {find_target(run.gpu).capability for run in runs} == {(8, 0), (8, 6), (8, 9)}


def test_constant_is_fitted_per_gpu() -> None:
    rows = [row(1000, 1030), row(1000, 1040), row(1000, 1200), row(1000, 900, gpu="RTX 4060")]
    assert constants(rows) == {"RTX 3060": 40, "RTX 4060": -100}


def test_errors_and_coverage_are_those_of_reserved_plus_the_constant() -> None:
    rows, constant = [row(1000, 1040), row(1000, 1300)], {"RTX 3060": 40.0}
    assert errors(rows, constant) == pytest.approx([0, 1040 / 1300 - 1])
    assert inside(rows, constant) == 1


@pytest.mark.parametrize(
    ("cap", "ran", "contradicts"), [(89, True, 1), (90, True, 0), (111, False, 1), (109, False, 0), (200, True, 0)]
)
def test_capped_runs_contradict_the_range_of_needed(cap: int, ran: bool, contradicts: int) -> None:  # noqa: FBT001
    needed = {"low": 90, "value": 100, "high": 110}
    assert contradictions([row(1000, 1000, needed=needed, cap=cap, ran=ran)]) == contradicts
