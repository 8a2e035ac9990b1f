"""What a training run is asked to do."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from ...errors import UsageError
from ..dataset._tiles import cut
from ..model._network import HEAD, SIZES
from ._hyperparameters import Recipe

PRECISIONS = ("fp32", "amp-bf16", "amp-fp16")  # that the guard runs
LARGEST = -1  # a batch of this size asks for the largest that is comfortable

_LEAST = {"freeze": 0, "patience": 0, "minutes": 0, "seed": 0, "every": 1, "tolerated": 0}


@dataclass(frozen=True)
class OrderForm:
    """A training run as it was asked for.

    Attributes:
        data: the data.yaml.
        folder: where results go.
        network: "n" to "x".
        weights: a file to begin with; fresh weights if None.
        size: side of the images.
        batch: images of an iteration over all ranks, or -1 for the largest that is comfortable.
        epochs: passes over the training images.
        device: "cpu", "cuda" or "cuda:1"; the first GPU if there is one, without.
        threads: that load images; as the cores allow if None or 0.
        budget: bytes of the device (of the process on the CPU) that may be used; all there is if None.
        spare: bytes beyond what the process has taken before training, in place of a budget.
        recipe: the hyperparameters.
        freeze: how many layers stay as they are.
        patience: epochs without improvement after which the run ends; 0 never.
        minutes: between checkpoints inside of an epoch.
        precision: what to compute in; the fast one of the device if None.
        seed: what order, samples and fresh weights are drawn from.
        every: epochs between validations; after the last one always.
        allow: what may be changed where nothing else fits: "precision", "size".
        single_class: whether all classes are trained as one.
        tolerated: the share of images, and of boxes, that may be set aside as broken.
        tiles: train on windows of the images and validate by windows: True for windows of `size` pixels, a number for
            windows of so many, scaled to `size`.
    """

    data: Path
    folder: Path
    network: str = "s"
    weights: Path | None = None
    size: int = 640
    batch: int = 16
    epochs: int = 100
    device: str | None = None
    threads: int | None = None
    budget: int | None = None
    spare: int | None = None
    recipe: Recipe = field(default_factory=Recipe)
    freeze: int = 0
    patience: int = 100
    minutes: float = 10.0
    precision: str | None = None
    seed: int = 0
    every: int = 1
    allow: tuple[str, ...] = ()
    single_class: bool = False
    tolerated: float = 0.1
    tiles: bool | int = False

    def __post_init__(self) -> None:
        if self.network not in SIZES:
            raise UsageError(f"{self.network!r} is no size of YOLOv5", f"it must be one of {', '.join(SIZES)}")
        if self.batch != LARGEST and self.batch < 1:
            raise UsageError(f"batch is {self.batch}", "it must be at least 1, or -1 for the largest that fits")
        if self.epochs < 1:
            raise UsageError(f"epochs is {self.epochs}", "it must be at least 1")
        if self.size < 32:  # noqa: PLR2004  the largest stride
            raise UsageError(f"the image size is {self.size}", "it must be at least 32")
        if self.precision is not None and self.precision not in PRECISIONS:
            raise UsageError(f"precision is {self.precision!r}", f"it must be one of {', '.join(PRECISIONS)}")
        if self.threads is not None and self.threads < 0:
            raise UsageError(f"workers is {self.threads}", "it must be at least 1, or 0 for as many as the cores allow")
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if not least <= value < float("inf"):
                raise UsageError(f"{name} is {value}", f"it must be at least {least}")
        if self.freeze > HEAD:
            raise UsageError(
                f"freeze is {self.freeze}", f"it must be at most {HEAD}: layer {HEAD}, the head, has to learn"
            )
        cut(self.tiles, self.size)
