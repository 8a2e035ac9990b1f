from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from oomph.detect import DemoSize, TrainConfig, read_weights, save_weights, write_demo_dataset, yolov5
from oomph.errors import UsageError
from oomph.shrink.quantization._training import train_aware

from ...detect.training.runs import RecordingProgress, small_config

pytestmark = pytest.mark.medium


class StopAfterEpoch(RecordingProgress):
    """Ends the run as Ctrl-C does, after an epoch."""

    def on_epoch_end(self, row: dict[str, Any]) -> None:
        super().on_epoch_end(row)
        raise KeyboardInterrupt


@pytest.fixture
def config(tmp_path: Path) -> TrainConfig:
    data = write_demo_dataset(tmp_path / "data", DemoSize(train=8, val=2))
    torch.manual_seed(0)
    save_weights(tmp_path / "n.pt", yolov5("n", 4), list("abcd"))
    return small_config(data, tmp_path / "n-int8-qat", weights=tmp_path / "n.pt", fake_quantize=True)


class StopAtStep(RecordingProgress):
    """Ends the run as Ctrl-C does, in its first step."""

    def on_step(self, stats: Any) -> None:
        del stats
        raise KeyboardInterrupt


def test_the_same_call_starts_over_continues_and_then_does_nothing(config: TrainConfig) -> None:
    with pytest.raises(KeyboardInterrupt):
        train_aware(config, StopAtStep())
    for file in (config.run_dir / "weights").glob("state*"):  # as if it had been killed before the first checkpoint
        file.unlink()
    with pytest.raises(KeyboardInterrupt):
        train_aware(config, StopAfterEpoch())
    progress = RecordingProgress()
    best, result = train_aware(config, progress)
    assert [row["epoch"] for row in progress.rows] == [2]
    assert "resumed at iteration 1 of 2" in progress.messages
    assert result.epochs == 2
    assert read_weights(best).classes == 4
    again = RecordingProgress()
    train_aware(config, again)
    assert again.steps == 0
    assert "all 2 epochs are already trained" in again.messages


def test_other_weights_settings_and_folders_are_not_touched(config: TrainConfig, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        train_aware(config, StopAfterEpoch())
    state = (config.run_dir / "weights/state.pt").read_bytes()
    with pytest.raises(
        UsageError, match=r"has a training with other settings \(batch, epochs\); move that folder away"
    ):
        train_aware(replace(config, epochs=3, batch=4), RecordingProgress())
    save_weights(tmp_path / "n.pt", yolov5("n", 4), list("abcd"))
    with pytest.raises(UsageError, match=r"has a training of other weights than .*n\.pt; move that folder away"):
        train_aware(config, RecordingProgress())
    assert (config.run_dir / "weights/state.pt").read_bytes() == state
    with pytest.raises(UsageError, match="exists and has no training of this command"):
        train_aware(replace(config, run_dir=tmp_path / "data"), RecordingProgress())
    assert not (tmp_path / "data/weights").exists()
