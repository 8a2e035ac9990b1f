"""Ultralytics' models and trainers as Jobs, on generated batches of the size that training uses."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from ultralytics.cfg import get_cfg

from ..adapters import FrameworkJob
from ..errors import UsageError
from ..job import Job
from ..settings import Settings, Size, environment_allocator

_BOXES = 8  # per image, where no dataset tells it
_MOSAIC = 4  # images in one
_ASSIGNED = 10  # anchors per box
_MASK_STRIDE = 4
_STRIDES = (8, 16, 32)
_TASKS = ("detect", "obb", "segment", "pose", "classify")


def job_of_trainer(trainer: Any) -> FrameworkJob:
    """Return what a trainer trains, and how; it has begun to train, or is about to.

    Raises:
        UsageError: its model or its task can't be predicted.
    """
    if trainer.optimizer is None or not isinstance(trainer.model, nn.Module):
        raise UsageError("the trainer isn't set up yet", "pass the YOLO model before training, or add_guard's budget=")
    optimizer = trainer.optimizer
    return _describe(trainer.model, trainer.args, lambda _: optimizer, _boxes_per_image(trainer), trainer.device.type)


def job_of_model(model: Any) -> FrameworkJob:
    """Return what a YOLO object trains with its own settings, by default 16 images of 640 × 640 pixels.

    Raises:
        UsageError: it is not a PyTorch model, or its task can't be predicted.
    """
    if not isinstance(model.model, nn.Module):
        raise UsageError(f"{type(model).__name__} has an exported model", "pass one with a .pt or .yaml file")
    args = get_cfg(overrides={name: value for name, value in model.overrides.items() if name != "model"})
    return _describe(model.model, args, _optimizer_of(str(args.optimizer)), _BOXES, str(args.device or "cuda"))


def _describe(
    network: Any, args: Any, optimizer: Callable[[nn.Module], Any], boxes: int, device_type: str
) -> FrameworkJob:
    task = getattr(network, "task", None) or args.task
    if task not in _TASKS:
        raise UsageError(f"a model for {task} can't be predicted", f"use one for {', '.join(_TASKS)}")
    channels = int(network.yaml.get("channels", 3)) if isinstance(getattr(network, "yaml", None), dict) else 3
    shape = getattr(network.model[-1], "kpt_shape", (17, 3))
    settings = SimpleNamespace(**vars(args))  # of the copy that is traced

    def build() -> nn.Module:  # in a trace, the model is a copy
        network.args = settings
        for name, param in network.named_parameters():
            param.requires_grad = ".dfl" not in name and param.dtype.is_floating_point
        network.criterion = network.init_criterion()
        return network  # type: ignore[no-any-return]

    def batch(samples: int, size: Size) -> Any:
        height, width = size if isinstance(size, tuple) else (size, size)
        images = torch.rand(samples, channels, height, width)
        return images, _targets(task, samples, boxes, (height, width), shape)

    def loss(outputs: Any, targets: Any) -> Tensor:
        total: Tensor = network.criterion(outputs, targets)[0].sum()
        return total

    size = args.imgsz if isinstance(args.imgsz, int) else max(args.imgsz)
    anchors = sum((size // stride) ** 2 for stride in _STRIDES)
    job = Job(
        model=build,
        batch=batch,
        loss=loss,
        optimizer=optimizer,
        mask_fraction=min(1.0, _ASSIGNED * boxes / max(anchors, 1)) if task != "classify" else 1.0,
    )
    batch_size = args.batch if isinstance(args.batch, int) and args.batch > 0 else 16
    precision = "fp32"
    if args.amp not in {False, "fp32"} and device_type not in {"cpu", "mps"}:
        precision = "amp-bf16" if args.amp == "bf16" else "amp-fp16"
    return FrameworkJob(
        job, Settings(batch=batch_size, size=size, precision=precision, allocator=environment_allocator())
    )


def _targets(task: str, samples: int, boxes: int, size: tuple[int, int], keypoints: Any) -> dict[str, Tensor]:
    if task == "classify":
        return {"cls": torch.zeros(samples, dtype=torch.long)}
    rows = samples * boxes
    targets = {
        "batch_idx": torch.arange(samples).repeat_interleave(boxes).float(),
        "cls": torch.zeros(rows, 1),
        "bboxes": torch.full((rows, 5 if task == "obb" else 4), 0.5),
    }
    if task == "segment":
        height, width = (side // _MASK_STRIDE for side in size)
        targets["masks"] = torch.zeros(samples, height, width)
        targets["sem_masks"] = torch.zeros(samples, height, width, dtype=torch.long)
    if task == "pose":
        targets["keypoints"] = torch.full((rows, *keypoints), 0.5)
    return targets


def _boxes_per_image(trainer: Any) -> int:
    """Return the boxes of a large image of a trainer's dataset: four average images in a mosaic, or the largest one."""
    labels = getattr(trainer.train_loader.dataset, "labels", None)
    counts = [len(label["cls"]) for label in labels or () if isinstance(label, dict)]
    if not counts:
        return _BOXES
    mosaic = _MOSAIC if getattr(trainer.args, "mosaic", 0) else 1
    return max(1, math.ceil(max(mosaic * float(np.mean(counts)), float(np.max(counts)))))


def _optimizer_of(name: str) -> Callable[[nn.Module], torch.optim.Optimizer]:
    """Return what builds an optimizer of a name; AdamW, which Ultralytics chooses for short runs, for the others."""
    if name == "SGD":
        return lambda model: torch.optim.SGD(_trained(model), 0.01, momentum=0.9, nesterov=True)
    cls = {"Adam": torch.optim.Adam, "NAdam": torch.optim.NAdam, "RMSProp": torch.optim.RMSprop}.get(name)
    return lambda model: (cls or torch.optim.AdamW)(_trained(model), 0.001)


def _trained(model: nn.Module) -> list[nn.Parameter]:
    return [param for param in model.parameters() if param.requires_grad]
