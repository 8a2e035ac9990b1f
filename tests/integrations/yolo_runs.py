"""Training runs of Ultralytics on generated images, offline."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from .forwards import Forwards


def go_offline(folder: Path) -> None:
    """Let Ultralytics keep its settings in a folder and download nothing; call it before its first import."""
    os.environ.update(YOLO_OFFLINE="true", YOLO_CONFIG_DIR=str(folder), YOLO_AUTOINSTALL="false")
    from zoo.torchvision_shim import import_detection

    import_detection()  # declares NMS for its validation


def save_dataset(folder: Path, images: int = 12, size: int = 64) -> Path:
    """Save images of noise with 0 to 3 boxes each, and return the file that describes them."""
    rng = np.random.default_rng(0)
    for part, count in (("train", images), ("val", 2)):
        for kind in ("images", "labels"):
            (folder / kind / part).mkdir(parents=True)
        for number in range(count):
            pixels = rng.integers(0, 255, (size, size, 3), np.uint8)
            Image.fromarray(pixels).save(folder / "images" / part / f"{number:02}.png")
            boxes = np.hstack([rng.integers(0, 2, (number % 4, 1)), rng.uniform(0.3, 0.6, (number % 4, 4))])
            lines = [f"{int(row[0])} " + " ".join(f"{value:.4f}" for value in row[1:]) for row in boxes]
            (folder / "labels" / part / f"{number:02}.txt").write_text("\n".join(lines))
    path = folder / "data.yaml"
    path.write_text(f"path: {folder}\ntrain: images/train\nval: images/val\nnames: {{0: a, 1: b}}\n")
    return path


def save_network(folder: Path, *, end_to_end: bool = False) -> str:
    """Save a network of five layers with YOLOv8's head, or with the two heads of YOLO26."""
    layers = [f"  - [-1, 1, Conv, [{channels}, 3, 2]]" for channels in (8, 16, 16, 32, 32)]
    options = ["end2end: True", "reg_max: 1"] if end_to_end else []
    path = folder / ("tiny26.yaml" if end_to_end else "tiny.yaml")
    path.write_text("\n".join(["nc: 2", *options, "backbone:", *layers, "head:", "  - [[2, 3, 4], 1, Detect, [nc]]"]))
    return str(path)


@dataclass
class Outcome:
    """What a run left behind.

    Attributes:
        initial, weights: of the trained model, before and after.
        averages: of its moving average.
        losses: the loss and its components in each batch.
        updates: optimizer updates.
        batch: the trainer's batch size at the end.
        forwards: counts forwards, and those that ran out of memory.
    """

    initial: dict[str, Tensor] = field(default_factory=dict)
    weights: dict[str, Tensor] = field(default_factory=dict)
    averages: dict[str, Tensor] = field(default_factory=dict)
    losses: list[list[float]] = field(default_factory=list)
    updates: int = 0
    batch: int = 0
    forwards: Forwards = field(default_factory=Forwards)


def train(
    model: Any,
    data: Path,
    *,
    failing: Forwards | None = None,
    prepare: Callable[[Any], object] | None = None,
    freezes_statistics: bool = True,
    **options: Any,
) -> Outcome:
    """Train a YOLO object.

    Args:
        model: the YOLO object.
        data: the description of the dataset.
        failing: forwards that run out of memory.
        prepare: called with the trainer at the start.
        freezes_statistics: BatchNorm in eval mode, so that a split batch is exact.
        options: of Ultralytics' `train`.
    """
    outcome = Outcome(forwards=failing or Forwards())

    def start(trainer: Any) -> None:
        outcome.initial = {name: value.clone() for name, value in trainer.model.state_dict().items()}
        trainer.model.model[0].register_forward_pre_hook(outcome.forwards)
        trainer.optimizer.register_step_post_hook(lambda *_: count())
        if prepare is not None:
            prepare(trainer)

    def count() -> None:
        outcome.updates += 1

    def freeze(trainer: Any) -> None:
        for module in trainer.model.modules() if freezes_statistics else ():
            if isinstance(module, nn.BatchNorm2d):
                module.eval()

    def log(trainer: Any) -> None:
        items = trainer.loss_items
        outcome.losses.append([float(trainer.loss), *(float(value) for value in items.values())])
        outcome.batch = trainer.batch_size
        outcome.weights = {name: value.clone() for name, value in trainer.model.state_dict().items()}
        outcome.averages = {name: value.clone() for name, value in trainer.ema.ema.state_dict().items()}

    for event, callback in (("on_train_start", start), ("on_train_batch_start", freeze), ("on_train_batch_end", log)):
        model.add_callback(event, callback)
    defaults = {
        "epochs": 1, "batch": 4, "nbs": 4, "imgsz": 64, "device": "cpu", "workers": 0, "optimizer": "SGD", "lr0": 0.05,
        "warmup_epochs": 0, "plots": False, "val": False, "exist_ok": True, "verbose": False, "amp": False,
        "project": str(data.parent / "runs"), "mosaic": 0,
    }  # fmt: skip
    torch.manual_seed(0)
    model.train(data=str(data), **{**defaults, **options})
    return outcome


def largest_difference(first: dict[str, Tensor], second: dict[str, Tensor]) -> float:
    """Return the largest difference of two state dicts, relative to the largest weight of its tensor."""
    differences = [
        float((value.double() - second[name].double()).abs().max() / value.double().abs().max().clamp(min=1e-3))
        for name, value in first.items()
        if value.is_floating_point() and value.numel()
    ]
    return max(differences)
