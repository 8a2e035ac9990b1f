"""Export of a detector to a LiteRT file, for one square image."""

from __future__ import annotations

from pathlib import Path

import torch

from ...detect import Weights, append_litert_metadata
from ._network import build_network, metadata_of
from ._quiet import quiet


def export_litert(weights: Weights, path: Path, imgsz: int) -> None:
    """Write the network up to the head's convolutions to a LiteRT file."""
    with quiet():
        import litert_torch  # noqa: PLC0415  an extra

        image = torch.zeros(1, 3, imgsz, imgsz)
        litert_torch.convert(build_network(weights), sample_kwargs={"images": image}).export(str(path))
    append_litert_metadata(path, metadata_of(weights, imgsz, "fp32").encode())
