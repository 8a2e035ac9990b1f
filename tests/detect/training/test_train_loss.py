from __future__ import annotations

import pytest
import torch
from torch import Tensor

import oomph
from oomph.batch import batch_format
from oomph.detect import DetectionLoss, TrainLoss, Yolov5, yolov5

CPU = torch.device("cpu")


def network() -> Yolov5:
    torch.manual_seed(0)
    return yolov5("n", classes=3)


def batch(images: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    gen = torch.Generator().manual_seed(seed)
    targets = torch.tensor([[number, number % 3, 0.4, 0.5, 0.3, 0.2] for number in range(images)])
    return torch.rand(images, 3, 64, 64, generator=gen), targets


def test_parts_are_summed_over_micro_batches_and_steps_without_failed_attempts() -> None:
    model = network().train().requires_grad_(False)
    detection_loss = DetectionLoss(model, imgsz=64)
    data = batch(4)
    outputs = model(data[0])
    parts = detection_loss.parts(outputs, data[1])
    expected = [float(parts.box), float(parts.obj), float(parts.cls)]
    loss = TrainLoss(detection_loss, CPU)

    def attempt(micro_batches: int, done: int) -> float:
        normalizer = loss.normalizer(data)
        levels = [level.split(4 // micro_batches) for level in outputs]
        total = 0.0
        for number, (_, targets) in enumerate(batch_format("yolo").split(data, micro_batches)[:done]):
            total += float(loss([level[number] for level in levels], targets, normalizer))
        return total

    attempt(micro_batches=4, done=3)  # runs out of memory in the fourth
    assert attempt(micro_batches=2, done=2) == pytest.approx(float(parts.total), rel=1e-5)
    assert loss.totals() == [0.0, 0.0, 0.0]
    assert loss.totals(include_step=True) == pytest.approx(expected, rel=1e-5)
    loss.commit_step()
    attempt(micro_batches=1, done=1)
    loss.commit_step()
    assert loss.totals() == pytest.approx([2 * value for value in expected], rel=1e-5)
    resumed = TrainLoss(detection_loss, CPU)
    resumed.start_epoch(loss.totals())
    assert resumed.totals() == loss.totals()
    resumed.start_epoch()
    assert resumed.totals() == [0.0, 0.0, 0.0]


@pytest.mark.medium
def test_accumulated_gradients_sum_as_in_yolov5() -> None:
    """The guard averages the batches of an update by images; YOLOv5 sums their gradients."""
    model = network().eval()  # without BatchNorm statistics, which depend on the order
    model.head.train()
    detection_loss = DetectionLoss(model, imgsz=64)
    batches = [batch(4, seed=1), batch(4, seed=2), batch(2, seed=3)]
    for images, targets in batches:
        detection_loss(model(images), targets).backward()
    parameters = dict(model.named_parameters())
    expected = {name: item.grad.clone() for name, item in parameters.items() if item.grad is not None}
    model.zero_grad()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    before = {name: item.detach().clone() for name, item in parameters.items()}
    loss = TrainLoss(detection_loss, CPU)
    guard = oomph.guard(model=model, optimizer=optimizer, loss=loss, split="yolo")
    for number, data in enumerate(batches):
        loss.start_step(data, update_images=10)
        guard.step(data, update=number == 2)
    guard.close()
    for name, item in parameters.items():
        torch.testing.assert_close(before[name] - item.detach(), expected[name], rtol=1e-3, atol=1e-5)


@pytest.mark.medium
def test_batches_of_an_update_are_weighted_by_images_without_a_notice() -> None:
    model = network()
    detection_loss = DetectionLoss(model, imgsz=64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    for loss, notices in ((TrainLoss(detection_loss, CPU), 0), (detection_loss, 1)):
        guard = oomph.guard(model=model, optimizer=optimizer, loss=loss, split="yolo")
        guard.step(batch(2), update=False)
        guard.step(batch(2))
        assert len(guard.notices) == notices
        guard.close()
