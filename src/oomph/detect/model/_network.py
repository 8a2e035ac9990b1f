"""The YOLOv5 network in its five sizes; tensor names and shapes match the reference's checkpoints."""

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
MAX_STRIDE = STRIDES[-1]

# Width and height in pixels, three per level.
ANCHORS = (
    ((10.0, 13.0), (16.0, 30.0), (33.0, 23.0)),
    ((30.0, 61.0), (62.0, 45.0), (59.0, 119.0)),
    ((116.0, 90.0), (156.0, 198.0), (373.0, 326.0)),
)
Anchors = Sequence[Sequence[Sequence[float]]]


@dataclass(frozen=True)
class _LayerSpec:
    """One layer: its kind, output channels before width scaling, repeats before depth scaling, and input layers."""

    kind: str
    channels: int = 0
    repeats: int = 1
    inputs: tuple[int, ...] = (-1,)  # -1 is the previous layer


_OUTPUT_LAYERS = (17, 20, 23)
_LAYERS = (
    _LayerSpec("stem", 64),
    _LayerSpec("down", 128),
    _LayerSpec("c3", 128, 3),
    _LayerSpec("down", 256),
    _LayerSpec("c3", 256, 6),
    _LayerSpec("down", 512),
    _LayerSpec("c3", 512, 9),
    _LayerSpec("down", 1024),
    _LayerSpec("c3", 1024, 3),
    _LayerSpec("sppf", 1024),
    _LayerSpec("point", 512),
    _LayerSpec("upsample"),
    _LayerSpec("concat", inputs=(-1, 6)),
    _LayerSpec("c3 plain", 512, 3),
    _LayerSpec("point", 256),
    _LayerSpec("upsample"),
    _LayerSpec("concat", inputs=(-1, 4)),
    _LayerSpec("c3 plain", 256, 3),
    _LayerSpec("down", 256),
    _LayerSpec("concat", inputs=(-1, 14)),
    _LayerSpec("c3 plain", 512, 3),
    _LayerSpec("down", 512),
    _LayerSpec("concat", inputs=(-1, 10)),
    _LayerSpec("c3 plain", 1024, 3),
)
HEAD_INDEX = len(_LAYERS)
# Layers with an output that a later layer reads; each is read once.
_SAVED_LAYERS = frozenset(index for layer in _LAYERS for index in layer.inputs if index >= 0) | frozenset(
    _OUTPUT_LAYERS
)


class Yolov5(nn.Module):
    """A YOLOv5 detector.

    In training mode it returns the raw levels: three tensors (batch, 3, h, w, 5 + classes). In eval mode it returns
    `(predictions, levels)`, where predictions (batch, boxes, 5 + classes) hold center x, center y, width and height in
    pixels, objectness and class probabilities.

    Attributes:
        size: "n", "s", "m", "l" or "x".
        classes: number of classes.
    """

    def __init__(self, size: str, classes: int, anchors: Anchors) -> None:
        super().__init__()
        self.size, self.classes = size, classes
        depth, width = SIZES[size]
        layers: list[nn.Module] = []
        channels: list[int] = []
        for index, spec in enumerate(_LAYERS):
            inputs = sum(channels[source if source >= 0 else index - 1] for source in spec.inputs) if index else 3
            outputs = math.ceil(spec.channels * width / 8) * 8 or inputs
            layers.append(_build_layer(spec, inputs, outputs, max(round(spec.repeats * depth), 1)))
            channels.append(outputs)
        head = Head([channels[level] for level in _OUTPUT_LAYERS], classes, anchors, STRIDES)
        self.model = nn.ModuleList([*layers, head])

    @property
    def head(self) -> Head:
        """The last layer, which turns features into boxes (`model.24` in checkpoints)."""
        head = self.model[-1]
        assert isinstance(head, Head)  # noqa: S101  for the type checker
        return head

    def forward(self, images: Tensor) -> list[Tensor] | tuple[Tensor, list[Tensor]]:
        """Run on images (batch, 3, height, width): floats from 0 to 1 or uint8, both sides multiples of 32."""
        outputs: list[Tensor] | tuple[Tensor, list[Tensor]] = self.head(self.features(images))
        return outputs

    def features(self, images: Tensor) -> list[Tensor]:
        """Return the inputs of the head's three convolutions."""
        if images.dtype == torch.uint8:
            images = images.to(self.head.anchors.dtype) / 255
        height, width = images.shape[-2:]
        if height % MAX_STRIDE or width % MAX_STRIDE:
            raise UsageError(f"the images are {height} x {width} pixels", f"make both sides multiples of {MAX_STRIDE}")
        saved: dict[int, Tensor] = {}
        x = images
        for index, (spec, layer) in enumerate(zip(_LAYERS, self.model, strict=False)):
            x = layer(*(x if source < 0 else saved.pop(source) for source in spec.inputs))
            if index in _SAVED_LAYERS:
                saved[index] = x
        return [saved[level] for level in _OUTPUT_LAYERS]


class HeadOutputs(nn.Module):
    """A detector up to the head's convolutions: what is exported, because boxes and scores must not share a scale.

    Returns three tensors (batch, 3 * (5 + classes), h, w); `raw_level` and `decode_level` turn them into boxes.
    """

    def __init__(self, detector: Yolov5) -> None:
        super().__init__()
        self.detector = detector

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """Run on images (batch, 3, height, width): floats from 0 to 1."""
        features = self.detector.features(images)
        return tuple(layer(feature) for layer, feature in zip(self.detector.head.m, features, strict=True))


def _build_layer(spec: _LayerSpec, inputs: int, outputs: int, repeats: int) -> nn.Module:
    if spec.kind == "stem":
        return Conv(inputs, outputs, 6, 2, 2)
    if spec.kind == "down":
        return Conv(inputs, outputs, 3, 2)
    if spec.kind == "point":
        return Conv(inputs, outputs)
    if spec.kind == "sppf":
        return SPPF(inputs, outputs)
    if spec.kind == "upsample":
        return Upsample()
    if spec.kind == "concat":
        return Concat()
    return C3(inputs, outputs, repeats, shortcut=spec.kind == "c3")


def yolov5(size: str, classes: int = 80, anchors: Anchors | None = None) -> Yolov5:
    """Build a YOLOv5 detector with fresh weights on torch's current device (the meta device works).

    Args:
        size: "n", "s", "m", "l" or "x"; "yolov5s" is accepted as well.
        classes: number of classes.
        anchors: three (width, height) in pixels for each of the strides 8, 16 and 32; the reference's if None.

    Raises:
        UsageError: size, classes or anchors are invalid.
    """
    letter = size.lower().removeprefix("yolov5")
    if letter not in SIZES:
        raise UsageError(f"{size!r} is not a YOLOv5 size", f"choose one of {', '.join(SIZES)}")
    if classes < 1:
        raise UsageError(f"classes is {classes!r}", "pass an integer of at least 1")
    table = ANCHORS if anchors is None else anchors
    if any(len(level) != len(ANCHORS[0]) for level in table) or len(table) != len(STRIDES):
        raise UsageError(f"the anchors are {table!r}", "pass three (width, height) pairs for each of three levels")
    return Yolov5(letter, classes, table)


def grid_sizes(images: Tensor | torch.Size) -> list[tuple[int, int]]:
    """Return height and width of each level's grid for images of that shape."""
    height, width = (images if isinstance(images, torch.Size) else images.shape)[-2:]
    return [(height // stride, width // stride) for stride in STRIDES]


def round_to_stride(imgsz: int) -> int:
    """Round an image size up to the next multiple of the largest stride."""
    return math.ceil(imgsz / MAX_STRIDE) * MAX_STRIDE
