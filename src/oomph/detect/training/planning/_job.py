"""A detector as a Job, for predictions and plans."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ....job import Job
from ....patches import Widths
from ....settings import Size
from ...model import (
    DetectionLoss,
    DistilledDetector,
    DistillLoss,
    LossGains,
    StudentOutputs,
    Yolov5,
    student_of,
    yolov5,
)
from .._hyperparameters import Hyperparameters
from .._optimizer import build_optimizer
from .._optimizer import freeze as freeze_layers

_DEFAULT_BOXES = 8


def detection_job(
    size: str,
    classes: int = 80,
    boxes: float = _DEFAULT_BOXES,
    hyp: Hyperparameters | None = None,
    freeze: int = 0,
    widths: Widths | None = None,
) -> Job:
    """Return the training of a detector as a Job.

    Args:
        size: name of the network, as for `yolov5`.
        classes: number of classes.
        boxes: average number of boxes per image; they need little memory.
        hyp: hyperparameters; the defaults if None.
        freeze: number of frozen layers.
        widths: channels of the layers, if the network was pruned.
    """
    hyperparameters = hyp or Hyperparameters()

    def model() -> nn.Module:
        network = yolov5(size, classes, widths=widths)
        freeze_layers(network, freeze)
        return network

    def step(network: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        images, targets = batch
        # Created here because the loss reads the anchors of the trained network; it holds no tensors.
        loss = DetectionLoss(
            student_of(network),
            hyperparameters.gains,
            max(images.shape[-2:]),
            hyperparameters.anchor_t,
            hyperparameters.label_smoothing,
        )
        outputs = network(images)
        if isinstance(outputs, StudentOutputs):
            return loss(outputs.levels, targets) + outputs.losses.sum()
        return loss(outputs, targets)

    def optimizer(network: nn.Module) -> Optimizer:
        return build_optimizer(student_of(network), hyperparameters, hyperparameters.nominal_batch)

    return Job(model=model, batch=_random_batches(classes, boxes), step=step, optimizer=optimizer)


def with_teacher(job: Job, teacher: Callable[[], Yolov5], kind: str) -> Job:
    """Return the training of a detector with a teacher.

    Args:
        job: the result of `detection_job`.
        teacher: builds the teacher; its weights don't matter.
        kind: what the student learns from it, as in `DistillLoss`.
    """

    def model() -> nn.Module:
        student = job.model()
        assert isinstance(student, Yolov5)  # noqa: S101  for the type checker
        return DistilledDetector(student, teacher(), DistillLoss(kind, LossGains()))

    return replace(job, model=model)


def _random_batches(classes: int, boxes: float) -> Callable[[int, Size], Any]:
    def batch(count: int, size: Size) -> tuple[Tensor, Tensor]:
        height, width = (size, size) if isinstance(size, int) else size
        rows = max(round(count * boxes), 1)
        image = torch.arange(rows, dtype=torch.float32) % count
        label = torch.arange(rows, dtype=torch.float32) % classes
        # Boxes are spread over the image and are a tenth to a half of it.
        center = 0.1 + 0.8 * torch.rand(rows, 2)
        targets = torch.cat((image[:, None], label[:, None], center, 0.1 + 0.4 * torch.rand(rows, 2)), 1)
        return torch.rand(count, 3, height, width), targets

    return batch
