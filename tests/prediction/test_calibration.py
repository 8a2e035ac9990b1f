from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from torch import nn

import oomph
from oomph.prediction import Comparison, calibrate, load_calibration, save_comparison

COMPARISON = Comparison("NVIDIA H200", "torch 2.11.0", allocated=1.02, reserved=1.05, seconds=1.5, outside=10)
JOB = oomph.Job(
    model=lambda: nn.Linear(8, 8),
    batch=lambda n, _: (torch.randn(n, 8), torch.randn(n, 8)),
    loss=nn.functional.mse_loss,
    optimizer=lambda model: torch.optim.SGD(model.parameters(), 0.1),
)


def test_saved_comparisons_are_loaded(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "calibration.json"
    save_comparison(COMPARISON, file)
    save_comparison(dataclasses.replace(COMPARISON, device="cpu"), file)
    calibration = load_calibration(file)
    assert calibration.select("NVIDIA H200", "torch 2.11.0") == (COMPARISON,)
    assert calibration.environments()[0][0] == "cpu"
    assert list(file.parent.iterdir()) == [file]


@pytest.mark.medium
def test_only_the_latest_comparisons_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "calibration.json"
    for number in range(60):
        save_comparison(dataclasses.replace(COMPARISON, outside=number), file)
    assert [item.outside for item in load_calibration(file).comparisons] == list(range(10, 60))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"oomph": "calibration", "version": 9}'])
def test_broken_file_is_ignored(tmp_path: Path, text: str) -> None:
    file = tmp_path / "calibration.json"
    file.write_text(text)
    assert load_calibration(file).comparisons == ()
    save_comparison(COMPARISON, file)
    assert load_calibration(file).comparisons == (COMPARISON,)


def test_calibration_scales_by_the_median_and_keeps_the_range() -> None:
    prediction = oomph.predict(JOB, oomph.Settings(batch=4), "H200")
    ratios = (1.0, 1.1, 1.4)
    corrected = calibrate(prediction, tuple(dataclasses.replace(COMPARISON, allocated=ratio) for ratio in ratios))
    assert corrected.allocated.value == pytest.approx(prediction.allocated.value * 1.1)
    assert corrected.allocated.origin.value == "measured"
    assert corrected.allocated.low <= prediction.allocated.low
    assert corrected.allocated.high >= corrected.allocated.value
    assert "3 measured runs" in corrected.assumptions[-1]
    assert calibrate(prediction, ()) is prediction


def test_measured_memory_outside_the_allocator_is_added() -> None:
    prediction = oomph.predict(JOB, oomph.Settings(batch=4), "H200")
    comparison = dataclasses.replace(COMPARISON, allocated=1.0, outside=700 * 1024**2)
    assert calibrate(prediction, (comparison,)).device.value == prediction.full_speed.value + 700 * 1024**2
