"""Metadata of an exported detector: everything that decoding its outputs needs."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import UsageError
from ..model import Anchors

_FORMAT, _VERSION = "oomph detector", 1
_ANCHORS_PER_LEVEL = 3


@dataclass(frozen=True)
class ExportMetadata:
    """Metadata of an exported detector.

    Attributes:
        names: class names.
        anchors: width and height in pixels, three per level.
        strides: pixels per cell of each level.
        imgsz: image size of the export: the largest one, where the format needs a limit.
        precision: "fp32" or "int8".
        parameters: number of weights and biases.
    """

    names: tuple[str, ...]
    anchors: Anchors
    strides: tuple[int, ...]
    imgsz: int
    precision: str
    parameters: int

    def encode(self) -> dict[str, str]:
        """Return the metadata as strings."""
        content = {
            "format": _FORMAT,
            "version": _VERSION,
            "names": list(self.names),
            "anchors": self.anchors,
            "strides": list(self.strides),
            "imgsz": self.imgsz,
            "precision": self.precision,
            "parameters": self.parameters,
        }
        return {key: value if isinstance(value, str) else json.dumps(value) for key, value in content.items()}

    @staticmethod
    def decode(entries: Mapping[str, str], path: Path) -> ExportMetadata:
        """Return the metadata that `encode` wrote.

        Raises:
            UsageError: the file isn't a detector that oomph exported, or its metadata is damaged.
        """
        if entries.get("format") != _FORMAT:
            raise UsageError(f"{path} is not a detector that oomph exported", "write one by `oomph shrink`")
        try:
            metadata = ExportMetadata(
                names=tuple(str(name) for name in json.loads(entries["names"])),
                anchors=_parse_anchors(json.loads(entries["anchors"])),
                strides=tuple(int(stride) for stride in json.loads(entries["strides"])),
                imgsz=int(entries["imgsz"]),
                precision=entries["precision"],
                parameters=int(entries["parameters"]),
            )
        except (KeyError, TypeError, ValueError):
            raise UsageError(f"the metadata of {path} is damaged", "export the detector again") from None
        if not metadata.names or not metadata.strides or len(metadata.anchors) != len(metadata.strides):
            raise UsageError(f"the metadata of {path} is damaged", "export the detector again")
        return metadata


def _parse_anchors(value: Any) -> Anchors:
    levels = tuple(tuple((float(width), float(height)) for width, height in level) for level in value)
    sides = [side for level in levels for anchor in level for side in anchor]
    if any(len(level) != _ANCHORS_PER_LEVEL for level in levels) or not all(map(math.isfinite, sides)):
        raise ValueError("invalid anchors")
    return levels
