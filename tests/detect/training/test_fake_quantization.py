from __future__ import annotations

from pathlib import Path

import pytest
import torch

import oomph
from oomph import Settings
from oomph.detect import DemoSize, detection_job, read_weights, train, write_demo_dataset, yolov5
from oomph.detect.training._fake_quantization import fake_quantize, fake_quantized_job
from oomph.patches import is_fake_quantized

from .runs import RecordingProgress, small_config


class StopAfterEpoch(RecordingProgress):
    """Ends the run as Ctrl-C does, after an epoch."""

    def on_epoch_end(self, row: dict[str, object]) -> None:
        super().on_epoch_end(row)
        raise KeyboardInterrupt


def test_all_convolutions_round_but_the_head() -> None:
    network = yolov5("n", 4)
    fake_quantize(network)
    layers = {name: module for name, module in network.named_modules() if isinstance(module, torch.nn.Conv2d)}
    in_float = [name for name, layer in layers.items() if not is_fake_quantized(layer)]
    assert len(layers) == 60
    assert in_float == ["model.24.m.0", "model.24.m.1", "model.24.m.2"]


@pytest.mark.medium
def test_the_prediction_includes_the_rounding() -> None:
    job, settings = detection_job("n", 4), Settings(batch=4, size=64)
    before = oomph.predict(job, settings, "RTX 3060").allocated.value
    after = oomph.predict(fake_quantized_job(job), settings, "RTX 3060").allocated.value
    assert before < after < 1.5 * before


@pytest.mark.large
def test_a_resumed_run_ends_with_the_same_weights(tmp_path: Path) -> None:
    data = write_demo_dataset(tmp_path / "data", DemoSize(train=12, val=2))
    whole = small_config(data, tmp_path / "whole", fake_quantize=True)
    plain = RecordingProgress()
    train(whole, plain)
    parts = small_config(data, tmp_path / "parts", fake_quantize=True)
    with pytest.raises(KeyboardInterrupt):
        train(parts, StopAfterEpoch())
    train(parts, RecordingProgress(), resume=True)
    expected, resumed = (read_weights(config.run_dir / "weights/last.pt") for config in (whole, parts))
    assert list(expected.state) == list(yolov5("n", 4).state_dict())
    for name, tensor in expected.state.items():
        assert torch.equal(tensor, resumed.state[name]), name
    in_float = RecordingProgress()
    train(small_config(data, tmp_path / "float"), in_float)
    assert in_float.rows[0]["loss"] != plain.rows[0]["loss"]
