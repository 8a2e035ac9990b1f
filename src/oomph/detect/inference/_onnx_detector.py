"""Detectors in ONNX files: ONNX Runtime runs the network, and torch decodes its outputs in float."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import MissingFile, UsageError, describe
from ..checkpoint import OnnxMetadata
from ..model import MAX_STRIDE, decode_level, raw_level

EXPORT_EXTRA = "run `pip install 'oomph[export]'`"
_BOX_OUTPUTS = 5  # x, y, width, height, objectness
_ERRORS_ONLY = 3  # of ONNX Runtime's log levels


def is_onnx(path: Path) -> bool:
    """Return True if a file is an ONNX file by its name."""
    return path.suffix.lower() == ".onnx"


def open_session(path: Path) -> Any:
    """Open an ONNX file on the CPU.

    Raises:
        MissingFile: the file doesn't exist.
        UsageError: it isn't an ONNX file, or ONNX Runtime isn't installed.
    """
    try:
        import onnxruntime  # noqa: PLC0415  an extra
    except ImportError:
        raise UsageError(f"{path} needs the package onnxruntime, which isn't installed", EXPORT_EXTRA) from None
    if not path.is_file():
        raise MissingFile(f"there is no file '{path}'", "check the path")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = _ERRORS_ONLY
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # noqa: BLE001  its exceptions have no common base class
        raise UsageError(f"{path} can't be read as an ONNX file ({describe(error)})", "export it again") from None


class OnnxDetector(nn.Module):
    """A detector whose network is an ONNX session; it returns what `Yolov5` returns in eval mode.

    Attributes:
        metadata: class names, anchors, strides and image size.
    """

    anchors: Tensor

    def __init__(self, session: Any, metadata: OnnxMetadata) -> None:
        super().__init__()
        self.metadata, self._session = metadata, session
        self.register_buffer("anchors", torch.tensor(metadata.anchors, dtype=torch.float32))

    @staticmethod
    def open(path: Path, device: str | None = None) -> OnnxDetector:
        """Open an ONNX file of `oomph shrink`.

        Raises:
            MissingFile: the file doesn't exist.
            UsageError: it isn't such a file, or the device is a GPU.
        """
        if device not in {None, "cpu"}:
            raise UsageError(f"{path} is an ONNX file, which runs on the CPU", "use --device cpu")
        session = open_session(path)
        metadata = OnnxMetadata.decode(session.get_modelmeta().custom_metadata_map, path)
        channels = len(metadata.anchors[0]) * (_BOX_OUTPUTS + len(metadata.names))
        if [list(output.shape[1:2]) for output in session.get_outputs()] != [[channels]] * len(metadata.strides):
            raise UsageError(f"the outputs of {path} don't match its metadata", "export the detector again")
        return OnnxDetector(session, metadata).eval()

    def forward(self, images: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Run on images (batch, 3, height, width): floats from 0 to 1 or uint8, both sides multiples of 32."""
        if any(side % MAX_STRIDE for side in images.shape[-2:]):
            height, width = images.shape[-2:]
            raise UsageError(f"the images are {height} x {width} pixels", f"make both sides multiples of {MAX_STRIDE}")
        pixels = images.float() / 255 if images.dtype == torch.uint8 else images.float()
        outputs = self._session.run(None, {self._session.get_inputs()[0].name: pixels.numpy()})
        count = _BOX_OUTPUTS + len(self.metadata.names)
        raw = [raw_level(torch.from_numpy(output), count) for output in outputs]
        levels = zip(raw, self.anchors, self.metadata.strides, strict=True)
        boxes = [decode_level(level, anchors, stride) for level, anchors, stride in levels]
        return torch.cat([level.flatten(1, 3) for level in boxes], 1), raw
