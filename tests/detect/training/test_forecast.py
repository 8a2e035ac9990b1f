from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from oomph.detect import TrainForecast, forecast
from oomph.errors import CannotFit
from oomph.machine import rss_bytes
from oomph.units import MIB

from .runs import RecordingProgress, small_config


@pytest.mark.large
def test_runs_are_forecast_without_training(demo_data: Path, tmp_path: Path) -> None:
    config = small_config(demo_data, tmp_path / "run")
    runs = (config, replace(config, imgsz=128, epochs=4), replace(config, imgsz=128, budget=rss_bytes() + 80 * MIB))
    small, large, impossible = forecast(runs, RecordingProgress())
    assert isinstance(small, TrainForecast)
    assert isinstance(large, TrainForecast)
    assert large.plan.requested_need.allocated.value > 1.2 * small.plan.requested_need.allocated.value
    assert large.seconds > 4 * small.seconds
    assert isinstance(impossible, CannotFit)
    assert not (tmp_path / "run").exists()
