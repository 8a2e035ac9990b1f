"""The network of an architecture; for YOLOv5's, tensor names and shapes match the reference's checkpoints."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from ...errors import UsageError
from ...patches import Widths, read_widths, set_widths
from ._architectures import Architecture, LayerSpec, find_architecture
from ._blocks import C3, SPPF, Concat, Conv, Upsample
from ._head import Head
from ._mobile_blocks import ACTIVATIONS, Bneck, ConvNorm, InvertedResidual, SeparableConv, ShuffleDown, ShuffleUnit

STRIDES = (8, 16, 32)
MAX_STRIDE = STRIDES[-1]

# Width and height in pixels, three per level.
ANCHORS = (
    ((10.0, 13.0), (16.0, 30.0), (33.0, 23.0)),
    ((30.0, 61.0), (62.0, 45.0), (59.0, 119.0)),
    ((116.0, 90.0), (156.0, 198.0), (373.0, 326.0)),
)
Anchors = Sequence[Sequence[Sequence[float]]]


class Yolov5(nn.Module):
    """A YOLOv5 detector, or its neck and head on another backbone.

    In training mode it returns the raw levels: three tensors (batch, 3, h, w, 5 + classes). In eval mode it returns
    `(predictions, levels)`, where predictions (batch, boxes, 5 + classes) hold center x, center y, width and height in
    pixels, objectness and class probabilities.

    Attributes:
        size: name of its architecture: "n", "s", "m", "l", "x", or that of another backbone.
        architecture: its layers.
        classes: number of classes.
        widths: channels of its layers, if it was pruned.
    """

    def __init__(self, size: str, classes: int, anchors: Anchors, widths: Widths | None = None) -> None:
        super().__init__()
        self.size, self.classes, self.widths = size, classes, widths
        self.architecture = find_architecture(size)
        self.model, levels = _build_layers(self.architecture)
        if widths is not None:
            levels = self._prune(widths)
        self.model.append(Head(levels, classes, anchors, STRIDES))

    def _prune(self, widths: Widths) -> list[int]:
        """Set the channels of all layers before the head, and return those of the head's inputs."""
        head = f"model.{self.architecture.head_index}.m."
        set_widths(self, {path: channels for path, channels in widths.items() if not path.startswith(head)})
        try:
            return [widths[f"{head}{level}"][0] for level in range(len(STRIDES))]
        except KeyError:
            raise UsageError("the widths lack those of the head", "use the file that `oomph shrink` wrote") from None

    @property
    def head(self) -> Head:
        """The last layer, which turns features into boxes (`model.24` in YOLOv5's checkpoints)."""
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
        for index, (spec, layer) in enumerate(zip(self.architecture.layers, self.model, strict=False)):
            x = layer(*(x if source < 0 else saved.pop(source) for source in spec.inputs))
            if index in self.architecture.saved_layers:
                saved[index] = x
        return [saved[level] for level in self.architecture.levels]


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


def _build_layers(architecture: Architecture) -> tuple[nn.ModuleList, list[int]]:
    """Build the layers before the head; return them and the channels of the head's inputs."""
    layers: list[nn.Module] = []
    channels: list[int] = []
    for index, spec in enumerate(architecture.layers):
        inputs = sum(channels[source if source >= 0 else index - 1] for source in spec.inputs) if index else 3
        layers.append(_BUILDERS[spec.kind](spec, inputs))
        channels.append(spec.channels or inputs)
    return nn.ModuleList(layers), [channels[level] for level in architecture.levels]


def _inverted_residual(spec: LayerSpec, inputs: int) -> nn.Module:
    options = Bneck(spec.kernel, spec.stride, spec.expanded, spec.squeeze, ACTIVATIONS[spec.activation])
    return InvertedResidual(inputs, spec.channels, options)


# Builds a layer that has a number of input channels, by the kind of the layer.
_BUILDERS: dict[str, Callable[[LayerSpec, int], nn.Module]] = {
    "stem": lambda spec, inputs: Conv(inputs, spec.channels, 6, 2, 2),
    "down": lambda spec, inputs: Conv(inputs, spec.channels, 3, 2),
    "point": lambda spec, inputs: Conv(inputs, spec.channels),
    "c3": lambda spec, inputs: C3(inputs, spec.channels, spec.repeats),
    "c3 plain": lambda spec, inputs: C3(inputs, spec.channels, spec.repeats, shortcut=False),
    "sppf": lambda spec, inputs: SPPF(inputs, spec.channels),
    "upsample": lambda _, __: Upsample(),
    "concat": lambda _, __: Concat(),
    "separable down": lambda spec, inputs: SeparableConv(inputs, spec.channels, 3, 2),
    "separable c3": lambda spec, inputs: C3(inputs, spec.channels, spec.repeats, spatial=SeparableConv),
    "conv": lambda spec, inputs: ConvNorm(
        inputs, spec.channels, spec.kernel, spec.stride, ACTIVATIONS[spec.activation]
    ),
    "max pool": lambda _, __: nn.MaxPool2d(3, 2, 1),
    "bneck": _inverted_residual,
    "shuffle": lambda spec, _: ShuffleUnit(spec.channels),
    "shuffle down": lambda spec, inputs: ShuffleDown(inputs, spec.channels),
}


def yolov5(size: str, classes: int = 80, anchors: Anchors | None = None, widths: Widths | None = None) -> Yolov5:
    """Build a detector with fresh weights on torch's current device (the meta device works).

    Args:
        size: a name in ARCHITECTURES: "n", "s", "m", "l", "x", "mobilenet", "shufflenet" or "depthwise"; "yolov5s" is
            accepted as well.
        classes: number of classes.
        anchors: three (width, height) in pixels for each of the strides 8, 16 and 32; the reference's if None.
        widths: channels of a pruned network's layers; those of the architecture if None.

    Raises:
        UsageError: size, classes, anchors or widths are invalid.
    """
    name = size.lower().removeprefix("yolov5")
    find_architecture(name)  # raises before anything else is checked
    if classes < 1:
        raise UsageError(f"classes is {classes!r}", "pass an integer of at least 1")
    table = ANCHORS if anchors is None else anchors
    if any(len(level) != len(ANCHORS[0]) for level in table) or len(table) != len(STRIDES):
        raise UsageError(f"the anchors are {table!r}", "pass three (width, height) pairs for each of three levels")
    return Yolov5(name, classes, table, widths)


def scaled_widths(size: str, fraction: float) -> Widths:
    """Return the channels of a network that keeps a fraction of them in every layer, as pruning does."""
    architecture = find_architecture(size)
    layers = tuple(
        replace(layer, channels=_scaled(layer.channels, fraction), expanded=_scaled(layer.expanded, fraction))
        for layer in architecture.layers
    )
    with torch.device("meta"):
        scaled, levels = _build_layers(replace(architecture, layers=layers))
    widths = {f"model.{path}": pair for path, pair in read_widths(scaled).items()}
    # The outputs of the head follow from the classes, not from these.
    return widths | {f"model.{architecture.head_index}.m.{n}": (inputs, inputs) for n, inputs in enumerate(levels)}


def _scaled(channels: int, fraction: float) -> int:
    """Return a fraction of channels as a multiple of 8; 0 stays 0."""
    return max(int(channels * fraction) // 8 * 8, min(channels, 8))


def grid_sizes(images: Tensor | torch.Size) -> list[tuple[int, int]]:
    """Return height and width of each level's grid for images of that shape."""
    height, width = (images if isinstance(images, torch.Size) else images.shape)[-2:]
    return [(height // stride, width // stride) for stride in STRIDES]


def round_to_stride(imgsz: int) -> int:
    """Round an image size up to the next multiple of the largest stride."""
    return math.ceil(imgsz / MAX_STRIDE) * MAX_STRIDE
