"""Export of a detector to ONNX, with any batch and any image size that is a multiple of 32."""

from __future__ import annotations

from pathlib import Path

import torch

from ...detect import STRIDES, Weights
from ._network import build_network, metadata_of
from ._onnx_file import write_metadata
from ._quiet import quiet

_EXAMPLE = (2, 3, 64, 96)  # different numbers, so that no two sides are taken for the same


def export_onnx(weights: Weights, path: Path, imgsz: int) -> None:
    """Write the network up to the head's convolutions to an ONNX file."""
    network = build_network(weights)
    size = STRIDES[-1]
    sides = {0: torch.export.Dim("batch"), 2: size * torch.export.Dim("rows"), 3: size * torch.export.Dim("columns")}
    with quiet():
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
