"""One of eight ranks of a billion parameters: predictions against measurements on an H200."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

REPO = Path(__file__).parents[2]
sys.path.append(str(REPO / "benchmarks"))

from sharded import all_settings, predict  # noqa: E402  needs the path above

import oomph  # noqa: E402

RECORDED = [
    json.loads(line) for line in (REPO / "benchmarks/results/sharded-h200-2026-11-18.jsonl").read_text().splitlines()
]


@pytest.mark.large
@pytest.mark.parametrize("settings", all_settings(), ids=lambda settings: f"{settings.parallel}-{settings.micro_batch}")
def test_a_rank_needs_what_was_measured(settings: oomph.Settings) -> None:
    recorded = json.loads(json.dumps(asdict(settings)))
    (measured,) = [row["measured_gib"] for row in RECORDED if row["settings"] == recorded]
    predicted = predict(settings)
    assert predicted["allocated"] == pytest.approx(measured["allocated"], rel=1e-4)
    assert predicted["reserved"] == pytest.approx(measured["reserved"], rel=2e-3)
