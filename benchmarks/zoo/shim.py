"""Lets torchvision's models be imported beside a torch without its operators. For tests and benchmarks only."""

from __future__ import annotations

import torch

_HELD: list[torch.library.Library] = []
_MISSING = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)


def declare_operators() -> None:
    """Declare the operators that torchvision's Python code looks for, unless its own will load."""
    if _HELD or torch.version.cuda:
        return
    library = torch.library.Library("torchvision", "DEF")
    for schema in _MISSING:
        library.define(schema)
    _HELD.append(library)  # definitions live as long as this does
