"""Settings that `oomph val` and `oomph detect` share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .._device import find_device
from ..checkpoint import Weights
from ..dataset import tiling
from ..model import NmsConfig, Yolov5


@dataclass(frozen=True)
class InferenceConfig:
    """Settings for running a detector.

    Attributes:
        weights: the weights file.
        imgsz: side of the images.
        device: "cpu", "cuda" or "cuda:1"; the first GPU, or the CPU, if None.
        tiles: False for whole images, True for tiles of `imgsz` pixels, or the side of the tiles, which are scaled to
            `imgsz`.
        nms: thresholds of the boxes; the function's default if None.
    """

    weights: Path
    imgsz: int = 640
    device: str | None = None
    tiles: bool | int = False
    nms: NmsConfig | None = None

    def __post_init__(self) -> None:
        tiling(self.tiles, self.imgsz)  # raises before anything is read or written


def build_model(weights: Weights, device: str | None) -> Yolov5:
    """Build the network in eval mode on the device."""
    return weights.build().eval().to(find_device(device))
