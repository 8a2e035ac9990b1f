"""Settings of a training run."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from ...errors import UsageError
from ...patches import Widths
from ...units import MIB
from ..dataset import DEMO_IMGSZ, tiling
from ..model import DISTILL_LOSSES, MAX_STRIDE, Anchors, Yolov5, find_architecture, yolov5
from ._hyperparameters import Hyperparameters

PRECISIONS = ("fp32", "amp-bf16", "amp-fp16")  # supported by the guard
AUTO_BATCH = -1
_MINIMUMS = {
    "freeze": 0,
    "patience": 0,
    "checkpoint_minutes": 0,
    "seed": 0,
    "val_interval": 1,
    "max_broken_fraction": 0,
    "distill_gain": 0,
}


@dataclass(frozen=True)
class TrainConfig:
    """Settings of a training run; names are YOLOv5's where it has one.

    Attributes:
        data: the data.yaml.
        run_dir: folder of the results.
        cfg: the network: its size, "n" to "x", or "mobilenet", "shufflenet" or "depthwise".
        widths: channels of its layers, if it was pruned.
        weights: initial weights; fresh ones if None.
        imgsz: side of the images.
        batch: images per iteration over all ranks, or -1 for the largest batch that fits.
        epochs: number of epochs.
        device: "cpu", "cuda" or "cuda:1"; the first GPU, or the CPU, if None.
        workers: number of processes (on a GPU) or threads (on the CPU) that load images; chosen if None or 0.
        budget: memory in bytes that may be used, of the device, or of the process on the CPU; all of it if None.
        budget_above_start: replaces `budget`: bytes above the memory that is in use before training.
        hyp: hyperparameters.
        freeze: number of layers to freeze.
        patience: epochs without improvement after which training stops; 0 never stops.
        checkpoint_minutes: time between checkpoints inside an epoch.
        precision: "fp32", "amp-bf16" or "amp-fp16"; the fast one of the device if None.
        seed: seed of weights, order and augmentation.
        val_interval: epochs between validations; the last epoch is always validated.
        allow: changes that are allowed if nothing else fits: "precision", "size".
        plan: a plan file of `oomph plan` to carry out; planned anew if None.
        single_cls: train all classes as one.
        max_broken_fraction: fraction of images, label files and boxes that may be broken.
        tiles: train and validate on tiles: True for tiles of `imgsz` pixels, or the side of the tiles, which are scaled
            to `imgsz`.
        teacher: weights of a detector that the trained one, the student, learns from beside the labels; none if None.
        distill: what it learns from the teacher: its outputs ("response"), its features ("feature") or "both".
        distill_gain: weight of that in the loss.
        fake_quantize: train with values that are rounded as in int8 (quantization-aware training), except in the head.
    """

    data: Path
    run_dir: Path
    cfg: str = "s"
    weights: Path | None = None
    imgsz: int = 640
    batch: int = 16
    epochs: int = 100
    device: str | None = None
    workers: int | None = None
    budget: int | None = None
    budget_above_start: int | None = None
    hyp: Hyperparameters = field(default_factory=Hyperparameters)
    freeze: int = 0
    patience: int = 100
    checkpoint_minutes: float = 10.0
    precision: str | None = None
    seed: int = 0
    val_interval: int = 1
    allow: tuple[str, ...] = ()
    plan: Path | None = None
    single_cls: bool = False
    max_broken_fraction: float = 0.1
    tiles: bool | int = False
    widths: Widths | None = None
    teacher: Path | None = None
    distill: str = "response"
    distill_gain: float = 1.0
    fake_quantize: bool = False

    def __post_init__(self) -> None:
        head_index = find_architecture(self.cfg).head_index
        if self.batch != AUTO_BATCH and self.batch < 1:
            raise UsageError(f"batch is {self.batch}", "use at least 1, or -1 for the largest batch that fits")
        if self.epochs < 1:
            raise UsageError(f"epochs is {self.epochs}", "use at least 1")
        if self.imgsz < MAX_STRIDE:
            raise UsageError(f"the image size is {self.imgsz}", f"use at least {MAX_STRIDE}")
        if self.precision is not None and self.precision not in PRECISIONS:
            raise UsageError(f"precision is {self.precision!r}", f"choose one of {', '.join(PRECISIONS)}")
        if self.workers is not None and self.workers < 0:
            raise UsageError(f"workers is {self.workers}", "use at least 1, or 0 for an automatic choice")
        for name, minimum in _MINIMUMS.items():
            value = getattr(self, name)
            if not minimum <= value < float("inf"):
                raise UsageError(f"{name} is {value}", f"use at least {minimum}")
        if self.freeze > head_index:
            raise UsageError(f"freeze is {self.freeze}", f"use at most {head_index}: the head must be trained")
        if self.distill not in DISTILL_LOSSES:
            raise UsageError(f"distill is {self.distill!r}", f"choose one of {', '.join(DISTILL_LOSSES)}")
        tiling(self.tiles, self.imgsz)

    def build_network(self, classes: int, anchors: Anchors | None = None) -> Yolov5:
        """Build the network with fresh weights on torch's current device."""
        return yolov5(self.cfg, classes, anchors, self.widths)


def demo_config(data: Path, run_dir: Path) -> TrainConfig:
    """Return the configuration for the demo dataset, which trains in about four minutes on one core.

    It makes many small optimizer steps: with YOLOv5's nominal batch of 64 there would be too few. Objectness and class
    gains undo the scaling to small images and few classes. A plain loop with the whole batch exceeds the budget.
    """
    return TrainConfig(
        data=data,
        run_dir=run_dir,
        cfg="n",
        imgsz=DEMO_IMGSZ,
        batch=40,
        epochs=24,
        budget_above_start=296 * MIB,
        val_interval=8,
        hyp=Hyperparameters(
            lr0=0.06,
            warmup_epochs=2.0,
            min_warmup_iterations=20,
            nominal_batch=40,
            obj=(640 / DEMO_IMGSZ) ** 2,
            cls=4.0,
            mosaic=0.5,
        ),
    )
