from __future__ import annotations

import pytest
import torch

from oomph import Settings, predict
from oomph.detect import DetectionLoss, detection_job
from oomph.units import MIB


@pytest.mark.medium
def test_the_prediction_includes_network_and_loss() -> None:
    prediction = predict(detection_job("n", classes=3), Settings(4, size=128, precision="amp-fp16"), "H200")
    parameters = sum(parameter.numel() for parameter in detection_job("n", classes=3).model().parameters())
    assert prediction.allocated.value > 3 * 4 * parameters  # weights, gradients and momentum in fp32
    assert prediction.allocated.value < 200 * MIB


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
