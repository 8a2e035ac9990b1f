from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from torch import nn

import oomph
from oomph.prediction import Comparison, calibrated, load_calibration, remember

ONE = Comparison("NVIDIA H200", "torch 2.11.0", allocated=1.02, reserved=1.05, seconds=1.5, outside=10)
JOB = oomph.Job(
    model=lambda: nn.Linear(8, 8),
    batch=lambda n, _: (torch.randn(n, 8), torch.randn(n, 8)),
    loss=nn.functional.mse_loss,
    optimizer=lambda model: torch.optim.SGD(model.parameters(), 0.1),
)


def test_what_is_remembered_is_found_again(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "calibration.json"
    remember(ONE, file)
    remember(dataclasses.replace(ONE, device="cpu"), file)
    known = load_calibration(file)
    assert known.of("NVIDIA H200", "torch 2.11.0") == (ONE,)
    assert known.devices()[0][0] == "cpu"
    assert list(file.parent.iterdir()) == [file]


def test_only_the_latest_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "calibration.json"
    for number in range(60):
        remember(dataclasses.replace(ONE, outside=number), file)
    assert [one.outside for one in load_calibration(file).comparisons] == list(range(10, 60))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"oomph": "calibration", "version": 9}'])
def test_a_broken_file_is_no_calibration(tmp_path: Path, text: str) -> None:
    file = tmp_path / "calibration.json"
    file.write_text(text)
    assert load_calibration(file).comparisons == ()
    remember(ONE, file)
    assert load_calibration(file).comparisons == (ONE,)


def test_a_prediction_is_moved_by_the_median_and_keeps_its_range() -> None:
    made = oomph.predict(JOB, oomph.Settings(batch=4), "H200")
    ratios = (1.0, 1.1, 1.4)
    moved = calibrated(made, tuple(dataclasses.replace(ONE, allocated=ratio) for ratio in ratios))
    assert moved.allocated.value == pytest.approx(made.allocated.value * 1.1)
    assert moved.allocated.origin.value == "measured"
    assert moved.allocated.low <= made.allocated.low
    assert moved.allocated.high >= moved.allocated.value
    assert "3 measured runs" in moved.assumptions[-1]
    assert calibrated(made, ()) is made


def test_what_was_seen_outside_of_the_allocator_counts() -> None:
    made = oomph.predict(JOB, oomph.Settings(batch=4), "H200")
    seen = dataclasses.replace(ONE, allocated=1.0, outside=700 * 1024**2)
    assert calibrated(made, (seen,)).device.value == made.full_speed.value + 700 * 1024**2
