from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

import oomph
from oomph.detect import DetectionLoss, detection_job
from oomph.monitor import measure
from oomph.units import MIB

SMALL = ("mobilenet", "shufflenet", "depthwise")


@pytest.mark.medium
def test_the_job_trains() -> None:
    torch.manual_seed(0)
    job = detection_job("n", classes=3)
    assert job.optimizer is not None
    model = job.model()
    batch = job.batch(2, (64, 96))
    assert batch[0].shape == (2, 3, 64, 96)
    assert batch[1].shape == (16, 6)
    optimizer = job.optimizer(model)
    assert isinstance(optimizer, torch.optim.Optimizer)
    losses = []
    for _ in range(4):
        loss = job.run(model, batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    with torch.no_grad():
        model.eval()
        expected = DetectionLoss(model, imgsz=96)(model(batch[0]), batch[1])
        assert torch.equal(job.run(model, batch), expected)


@pytest.mark.medium
@pytest.mark.parametrize("size", SMALL)
def test_small_backbones_need_more_memory_than_yolov5n(size: str) -> None:
    settings = oomph.Settings(batch=16, size=640)
    smallest = oomph.predict(detection_job("n"), settings, "RTX 3060")
    prediction = oomph.predict(detection_job(size), settings, "RTX 3060")
    assert smallest.allocated.value < prediction.allocated.value < 1.5 * smallest.allocated.value


@pytest.mark.large
@pytest.mark.skipif(sys.platform != "linux", reason="measures RSS as Linux counts it")
@pytest.mark.parametrize("size", ["n", *SMALL])
def test_cpu_training_needs_what_is_predicted(tmp_path: Path, size: str) -> None:
    file = tmp_path / "job.py"
    file.write_text(f"from oomph.detect import detection_job\ndef job():\n    return detection_job({size!r})\n")
    settings = oomph.Settings(batch=16, size=256)
    predicted = oomph.predict(detection_job(size), settings, "cpu").allocated
    measured = measure(f"{file}:job", settings).allocated
    assert measured > 512 * MIB
    assert predicted.value == pytest.approx(measured, rel=0.1)
    assert predicted.low <= measured <= predicted.high
