"""Export of a detector to ONNX, with any batch and any image size that is a multiple of 32."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path

import torch

from ...detect import STRIDES, HeadOutputs, OnnxMetadata, Weights
from .._onnx_file import write_metadata

_EXAMPLE = (2, 3, 64, 96)  # different numbers, so that no two sides are taken for the same


def export_onnx(weights: Weights, path: Path, imgsz: int) -> None:
    """Write the network up to the head's convolutions to an ONNX file."""
    network = HeadOutputs(weights.build()).eval()
    size = STRIDES[-1]
    sides = {0: torch.export.Dim("batch"), 2: size * torch.export.Dim("rows"), 3: size * torch.export.Dim("columns")}
    with warnings.catch_warnings(), Quiet("torch.onnx"):
        warnings.simplefilter("ignore")  # of torch and onnxscript about each other
        program = torch.onnx.export(
            network,
            (torch.zeros(_EXAMPLE),),
            dynamo=True,
            dynamic_shapes={"images": sides},
            input_names=["images"],
            output_names=[f"level{stride}" for stride in STRIDES],
            verbose=False,
        )
    assert program is not None  # noqa: S101  dynamo=True returns a program
    program.save(str(path), external_data=False)
    write_metadata(path, metadata_of(weights, imgsz, "fp32"))


def metadata_of(weights: Weights, imgsz: int, precision: str) -> OnnxMetadata:
    """Return the metadata of a detector's ONNX file; classes without names are numbered."""
    anchors = weights.build().head.anchors * torch.tensor(STRIDES).view(-1, 1, 1)
    names = weights.names or tuple(str(number) for number in range(weights.classes))
    return OnnxMetadata(names, anchors.tolist(), STRIDES, imgsz, precision)


class Quiet:
    """Context in which a logger shows errors only."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)
        self._level = self._logger.level

    def __enter__(self) -> None:
        self._logger.setLevel(logging.ERROR)

    def __exit__(self, *_: object) -> None:
        self._logger.setLevel(self._level)
