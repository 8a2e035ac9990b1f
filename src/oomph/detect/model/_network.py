"""The YOLOv5 network in its five sizes; names and shapes of its tensors are those of the reference's checkpoints."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ...errors import UsageError
from ._blocks import C3, SPPF, Concat, Conv, Upsample
from ._head import Head

SIZES = {"n": (0.33, 0.25), "s": (0.33, 0.50), "m": (0.67, 0.75), "l": (1.00, 1.00), "x": (1.33, 1.25)}
STRIDES = (8, 16, 32)

# Widths and heights in pixels, three a level.
ANCHORS = (
    ((10.0, 13.0), (16.0, 30.0), (33.0, 23.0)),
    ((30.0, 61.0), (62.0, 45.0), (59.0, 119.0)),
    ((116.0, 90.0), (156.0, 198.0), (373.0, 326.0)),
)
Anchors = Sequence[Sequence[Sequence[float]]]


@dataclass(frozen=True)
class _Row:
    """One entry of the network's list: what it is, its channels before scaling, what it reads (-1: the one before)."""

    kind: str
    channels: int = 0
    repeats: int = 1
    reads: tuple[int, ...] = (-1,)


_LEVELS = (17, 20, 23)
_ROWS = (
    _Row("stem", 64),
    _Row("down", 128),
    _Row("c3", 128, 3),
    _Row("down", 256),
    _Row("c3", 256, 6),
    _Row("down", 512),
    _Row("c3", 512, 9),
    _Row("down", 1024),
    _Row("c3", 1024, 3),
    _Row("sppf", 1024),
    _Row("point", 512),
    _Row("upsample"),
    _Row("concat", reads=(-1, 6)),
    _Row("c3 plain", 512, 3),
    _Row("point", 256),
    _Row("upsample"),
    _Row("concat", reads=(-1, 4)),
    _Row("c3 plain", 256, 3),
    _Row("down", 256),
    _Row("concat", reads=(-1, 14)),
    _Row("c3 plain", 512, 3),
    _Row("down", 512),
    _Row("concat", reads=(-1, 10)),
    _Row("c3 plain", 1024, 3),
)
HEAD = len(_ROWS)  # the number of the last layer
# Outputs that are read again later, each of them once.
_KEPT = frozenset(read for row in _ROWS for read in row.reads if read >= 0) | frozenset(_LEVELS)


class Yolov5(nn.Module):
    """A YOLOv5 detector.

    In training mode it returns the raw levels, three tensors (batch, 3, h, w, 5 + classes). In eval mode it returns
    `(predictions, levels)`: predictions (batch, boxes, 5 + classes) are centre x, centre y, width and height in pixels,
    objectness and the classes' probabilities.

    Attributes:
        size: "n", "s", "m", "l" or "x".
        classes: how many classes it tells apart.
    """

    def __init__(self, size: str, classes: int, anchors: Anchors) -> None:
        super().__init__()
        self.size, self.classes = size, classes
        depth, width = SIZES[size]
        layers: list[nn.Module] = []
        channels: list[int] = []
        for index, row in enumerate(_ROWS):
            before = sum(channels[read if read >= 0 else index - 1] for read in row.reads) if index else 3
            after = math.ceil(row.channels * width / 8) * 8 or before
            layers.append(_layer(row, before, after, max(round(row.repeats * depth), 1)))
            channels.append(after)
        head = Head([channels[level] for level in _LEVELS], classes, anchors, STRIDES)
        self.model = nn.ModuleList([*layers, head])

    @property
    def head(self) -> Head:
        """The last layer, which turns features into boxes; its tensors are those of `model.24`."""
        head = self.model[-1]
        assert isinstance(head, Head)  # noqa: S101  built so above
        return head

    def forward(self, images: Tensor) -> list[Tensor] | tuple[Tensor, list[Tensor]]:
        """Find objects in images (batch, 3, height, width) of values 0 to 1, or bytes, both sides multiples of 32."""
        if images.dtype == torch.uint8:
            images = images.to(self.head.anchors.dtype) / 255
        height, width = images.shape[-2:]
        if height % STRIDES[-1] or width % STRIDES[-1]:
            raise UsageError(
                f"images are {height} pixels high and {width} wide", f"make both multiples of {STRIDES[-1]}"
            )
        kept: dict[int, Tensor] = {}
        x = images
        for index, (row, layer) in enumerate(zip(_ROWS, self.model, strict=False)):
            x = layer(*(x if read < 0 else kept.pop(read) for read in row.reads))
            if index in _KEPT:
                kept[index] = x
        found: list[Tensor] | tuple[Tensor, list[Tensor]] = self.head([kept[level] for level in _LEVELS])
        return found


def _layer(row: _Row, before: int, after: int, repeats: int) -> nn.Module:
    if row.kind == "stem":
        return Conv(before, after, 6, 2, 2)
    if row.kind == "down":
        return Conv(before, after, 3, 2)
    if row.kind == "point":
        return Conv(before, after)
    if row.kind == "sppf":
        return SPPF(before, after)
    if row.kind == "upsample":
        return Upsample()
    if row.kind == "concat":
        return Concat()
    return C3(before, after, repeats, shortcut=row.kind == "c3")


def yolov5(size: str, classes: int = 80, anchors: Anchors | None = None) -> Yolov5:
    """Build a YOLOv5 detector with fresh weights, on torch's current device (the meta device too).

    Args:
        size: "n", "s", "m", "l" or "x"; "yolov5s" is understood as well.
        classes: how many classes it tells apart.
        anchors: three (width, height) in pixels for each of the strides 8, 16 and 32; the reference's if None.

    Raises:
        UsageError: there is no such size, or the classes or anchors are no such numbers.
    """
    letter = size.lower().removeprefix("yolov5")
    if letter not in SIZES:
        raise UsageError(f"{size!r} is no size of YOLOv5", f"it must be one of {', '.join(SIZES)}")
    if classes < 1:
        raise UsageError(f"classes is {classes!r}", "it must be a whole number of at least 1")
    table = ANCHORS if anchors is None else anchors
    if any(len(level) != len(ANCHORS[0]) for level in table) or len(table) != len(STRIDES):
        raise UsageError(f"the anchors are {table!r}", "give three (width, height) for each of three levels")
    return Yolov5(letter, classes, table)


def grid_sizes(images: Tensor | torch.Size) -> list[tuple[int, int]]:
    """Height and width of each level's grid for images of a shape."""
    height, width = (images if isinstance(images, torch.Size) else images.shape)[-2:]
    return [(height // stride, width // stride) for stride in STRIDES]
