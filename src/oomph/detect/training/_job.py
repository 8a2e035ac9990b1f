"""A detector as a Job, for predictions and plans."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ...job import Job
from ...settings import Size
from ..model._loss import DetectionLoss
from ..model._network import Anchors, yolov5
from ._hyperparameters import Recipe, build_optimizer, freeze

_BOXES = 8  # of an image, if nobody counted


def detection_job(
    size: str,
    classes: int = 80,
    boxes: float = _BOXES,
    recipe: Recipe | None = None,
    anchors: Anchors | None = None,
    frozen: int = 0,
) -> Job:
    """Training a YOLOv5 detector.

    Args:
        size: "n", "s", "m", "l" or "x".
        classes: how many classes it tells apart.
        boxes: of an image, on average; their share of the memory is small.
        recipe: the hyperparameters; the defaults if None.
        anchors: as `yolov5` takes them.
        frozen: how many layers stay as they are.
    """
    own = recipe or Recipe()

    def build() -> nn.Module:
        model = yolov5(size, classes, anchors)
        freeze(model, frozen)
        return model

    def step(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        images, targets = batch
        # Made here because the loss reads the anchors of the very model that is trained; it holds no tensors.
        loss = DetectionLoss(model, own.gains, max(images.shape[-2:]), own.anchor_ratio, own.label_smoothing)
        return loss(model(images), targets)

    def optimizer(model: nn.Module) -> Optimizer:
        return build_optimizer(model, own, own.nominal_batch)

    return Job(model=build, batch=_batches(classes, boxes), step=step, optimizer=optimizer)


def _batches(classes: int, boxes: float) -> Callable[[int, Size], Any]:
    def batch(count: int, size: Size) -> tuple[Tensor, Tensor]:
        height, width = (size, size) if isinstance(size, int) else size
        rows = max(round(count * boxes), 1)
        image = torch.arange(rows, dtype=torch.float32) % count
        label = torch.arange(rows, dtype=torch.float32) % classes
        # Boxes lie all over the image and are a tenth to a half of it.
        places = 0.1 + 0.8 * torch.rand(rows, 2)
        targets = torch.cat((image[:, None], label[:, None], places, 0.1 + 0.4 * torch.rand(rows, 2)), 1)
        return torch.rand(count, 3, height, width), targets

    return batch
