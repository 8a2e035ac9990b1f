"""Export of a detector to an ExecuTorch program of the XNNPACK backend, for one image of any size up to a limit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from ...detect import STRIDES, ExportMetadata, Weights, executorch_metadata
from ._network import build_network, metadata_of
from ._quiet import quiet

EXAMPLE = (1, 3, 64, 96)  # different sides, so that they are not taken for the same


def export_executorch(weights: Weights, path: Path, imgsz: int) -> None:
    """Write the network up to the head's convolutions to an ExecuTorch program."""
    with quiet():
        program = export_program(build_network(weights), imgsz)
        write_program(program, path, metadata_of(weights, imgsz, "fp32"))


def export_program(network: nn.Module, imgsz: int) -> Any:
    """Return torch's program of a network whose image may have any sides up to the limit.

    The batch is 1, because ExecuTorch reserves the memory of the largest input. `oomph val` adds a border of one stride
    to images.
    """
    stride = STRIDES[-1]
    largest = imgsz // stride + 1
    rows, columns = (torch.export.Dim(name, min=1, max=largest) for name in ("rows", "columns"))
    return torch.export.export(
        network, (torch.zeros(EXAMPLE),), dynamic_shapes=({2: stride * rows, 3: stride * columns},)
    )


def write_program(program: Any, path: Path, metadata: ExportMetadata) -> None:
    """Lower a program to XNNPACK and write it with its metadata."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner  # noqa: PLC0415
    from executorch.exir import to_edge_transform_and_lower  # noqa: PLC0415

    lowered = to_edge_transform_and_lower(
        program, partitioner=[XnnpackPartitioner()], constant_methods=executorch_metadata(metadata.encode())
    )
    path.write_bytes(lowered.to_executorch().buffer)
