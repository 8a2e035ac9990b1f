"""Detectors in exported files: a runtime computes the network, and torch decodes its outputs in float."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from ...errors import UsageError
from ..checkpoint import ExportMetadata
from ..model import MAX_STRIDE, decode_level, raw_level
from ..runtimes import ExportedFile, open_exported

_BOX_OUTPUTS = 5  # x, y, width, height, objectness
_GRAY = 114 / 255  # of letterboxes


class ExportedDetector(nn.Module):
    """A detector whose network is an exported file; it returns what `Yolov5` returns in eval mode.

    Attributes:
        metadata: class names, anchors, strides and image size.
        max_imgsz: largest image size that it takes; None if there is no limit.
    """

    anchors: Tensor

    def __init__(self, file: ExportedFile, metadata: ExportMetadata) -> None:
        super().__init__()
        self.metadata, self._file = metadata, file
        self.max_imgsz = None if file.max_side is None else metadata.imgsz
        self.register_buffer("anchors", torch.tensor(metadata.anchors, dtype=torch.float32))

    @staticmethod
    def open(path: Path, device: str | None = None) -> ExportedDetector:
        """Open a file of `oomph shrink`.

        Raises:
            MissingFile: the file doesn't exist.
            UsageError: it isn't such a file, or the device is a GPU.
        """
        if device not in {None, "cpu"}:
            raise UsageError(f"{path} is an exported file, which runs on the CPU", "use --device cpu")
        file = open_exported(path)
        metadata = ExportMetadata.decode(file.entries, path)
        channels = len(metadata.anchors[0]) * (_BOX_OUTPUTS + len(metadata.names))
        if file.channels != (channels,) * len(metadata.strides):
            raise UsageError(f"the outputs of {path} don't match its metadata", "export the detector again")
        return ExportedDetector(file, metadata).eval()

    def forward(self, images: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Run on images (batch, 3, height, width): floats from 0 to 1 or uint8, both sides multiples of 32."""
        self._check_size(*images.shape[-2:])
        pixels = images.float() / 255 if images.dtype == torch.uint8 else images.float()
        left, top = 0, 0
        if self._file.is_fixed:
            pixels, (left, top) = _fit(pixels, self._file.max_side or 0)
        count = _BOX_OUTPUTS + len(self.metadata.names)
        raw = [raw_level(torch.from_numpy(output), count) for output in self._file.run(pixels.numpy())]
        levels = zip(raw, self.anchors, self.metadata.strides, strict=True)
        boxes = torch.cat([decode_level(level, anchors, stride).flatten(1, 3) for level, anchors, stride in levels], 1)
        boxes[..., :2] += torch.tensor([left, top])
        return boxes, raw

    def _check_size(self, height: int, width: int) -> None:
        if height % MAX_STRIDE or width % MAX_STRIDE:
            raise UsageError(f"the images are {height} x {width} pixels", f"make both sides multiples of {MAX_STRIDE}")
        # Rectangular batches are wider than the image size by a gray border of one stride.
        if self.max_imgsz is not None and max(height, width) > self.max_imgsz + MAX_STRIDE:
            raise UsageError(
                f"the images are {height} x {width} pixels, and the file was exported for {self.max_imgsz}",
                "use a smaller image size, or export for a larger one",
            )


def _fit(pixels: Tensor, side: int) -> tuple[Tensor, tuple[int, int]]:
    """Pad images at the right and bottom to a square, or cut the same border from both sides.

    Returns:
        the images, and how many pixels were cut at the left and top.
    """
    (left, right), (top, bottom) = _margins(pixels.shape[-1], side), _margins(pixels.shape[-2], side)
    fitted = nn.functional.pad(pixels, (left, right, top, bottom), value=_GRAY).contiguous()
    return fitted, (-left, -top)


def _margins(length: int, side: int) -> tuple[int, int]:
    spare = side - length
    return (0, spare) if spare >= 0 else (spare // 2, spare - spare // 2)
