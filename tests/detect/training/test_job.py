from __future__ import annotations

import pytest
import torch

from oomph.detect import DetectionLoss, detection_job


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
