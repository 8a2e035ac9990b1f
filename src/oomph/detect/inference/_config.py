"""Settings that `oomph val` and `oomph detect` share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torch import nn

from ...errors import UsageError
from .._device import find_device
from ..checkpoint import read_weights
from ..dataset import tiling
from ..model import NmsConfig
from ..runtimes import is_exported
from ._exported_detector import ExportedDetector


@dataclass(frozen=True)
class InferenceConfig:
    """Settings for running a detector.

    Attributes:
        weights: the weights file, or an exported file of `oomph shrink`.
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


@dataclass(frozen=True)
class Detector:
    """A detector that is ready to run.

    Attributes:
        model: in eval mode on its device; it returns what `Yolov5` returns in that mode.
        classes: number of classes.
        names: class names, if the file has them.
    """

    model: nn.Module
    classes: int
    names: tuple[str, ...] | None


def load_detector(path: Path, device: str | None, imgsz: int | None = None) -> Detector:
    """Load the detector of a weights file or exported file.

    Args:
        path: the file.
        device: "cpu", "cuda" or "cuda:1"; the first GPU, or the CPU, if None.
        imgsz: the image size that it will run at; not checked if None.

    Raises:
        MissingFile: the file doesn't exist.
        UsageError: it isn't a detector, or can't run on that device or at that image size.
    """
    if is_exported(path):
        model = ExportedDetector.open(path, device)
        if imgsz is not None and model.max_imgsz is not None and imgsz > model.max_imgsz:
            raise UsageError(
                f"the image size is {imgsz}, and {path} was exported for at most {model.max_imgsz}",
                f"use --img {model.max_imgsz}, or export the detector again with --img {imgsz}",
            )
        return Detector(model, len(model.metadata.names), model.metadata.names)
    weights = read_weights(path)
    return Detector(weights.build().eval().to(find_device(device)), weights.classes, weights.names)
