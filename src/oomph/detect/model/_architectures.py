"""The networks by name: YOLOv5 in its five sizes, and YOLOv5's neck and head on three small backbones."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from ...errors import UsageError, quote


@dataclass(frozen=True)
class LayerSpec:
    """One layer of a network.

    Attributes:
        kind: what is built: a key of the table in `_network.py`.
        channels: output channels; 0 for those of the inputs together.
        repeats: number of blocks in the layer.
        inputs: layers that it reads; -1 is the previous one.
        kernel, stride: of its spatial convolution, where the kind doesn't imply them.
        expanded: channels inside an inverted residual.
        squeeze: True if an inverted residual has squeeze-and-excitation.
        activation: "silu", "relu" or "hardswish", where the kind doesn't imply it.
    """

    kind: str
    channels: int = 0
    repeats: int = 1
    inputs: tuple[int, ...] = (-1,)
    kernel: int = 1
    stride: int = 1
    expanded: int = 0
    squeeze: bool = False
    activation: str = "silu"


@dataclass(frozen=True)
class Architecture:
    """A network: its layers before the head.

    Attributes:
        label: its name in messages and as a Job, such as "yolov5n".
        layers: the layers, in order.
        levels: the three layers that the head reads, at strides 8, 16 and 32.
        backbone: number of layers before the neck.
    """

    label: str
    layers: tuple[LayerSpec, ...]
    levels: tuple[int, int, int]
    backbone: int

    @property
    def head_index(self) -> int:
        """Number of the head among the layers, as in tensor names (`model.24` in YOLOv5)."""
        return len(self.layers)

    @cached_property
    def saved_layers(self) -> frozenset[int]:
        """Layers with an output that a later layer reads; each is read once."""
        return frozenset(index for layer in self.layers for index in layer.inputs if index >= 0) | set(self.levels)


# YOLOv5 with depth and width 1.
_YOLOV5_BACKBONE = (
    LayerSpec("stem", 64),
    LayerSpec("down", 128),
    LayerSpec("c3", 128, 3),
    LayerSpec("down", 256),
    LayerSpec("c3", 256, 6),
    LayerSpec("down", 512),
    LayerSpec("c3", 512, 9),
    LayerSpec("down", 1024),
    LayerSpec("c3", 1024, 3),
    LayerSpec("sppf", 1024),
)
_YOLOV5_SIZES = {"n": (0.33, 0.25), "s": (0.33, 0.50), "m": (0.67, 0.75), "l": (1.00, 1.00), "x": (1.33, 1.25)}


def _neck(stride_8: int, stride_16: int, start: int) -> tuple[LayerSpec, ...]:
    """Return YOLOv5's neck, which starts at a layer and reads two layers of the backbone."""
    return (
        LayerSpec("point", 512),
        LayerSpec("upsample"),
        LayerSpec("concat", inputs=(-1, stride_16)),
        LayerSpec("c3 plain", 512, 3),
        LayerSpec("point", 256),
        LayerSpec("upsample"),
        LayerSpec("concat", inputs=(-1, stride_8)),
        LayerSpec("c3 plain", 256, 3),
        LayerSpec("down", 256),
        LayerSpec("concat", inputs=(-1, start + 4)),
        LayerSpec("c3 plain", 512, 3),
        LayerSpec("down", 512),
        LayerSpec("concat", inputs=(-1, start)),
        LayerSpec("c3 plain", 1024, 3),
    )


def _scale(layers: Iterable[LayerSpec], size: str) -> Iterator[LayerSpec]:
    """Yield layers with the depth and width of a size of YOLOv5."""
    depth, width = _YOLOV5_SIZES[size]
    for layer in layers:
        channels = math.ceil(layer.channels * width / 8) * 8
        yield replace(layer, channels=channels, repeats=max(round(layer.repeats * depth), 1))


def _with_neck(label: str, backbone: Iterable[LayerSpec], stride_8: int, stride_16: int, size: str) -> Architecture:
    """Return the architecture of a backbone, with YOLOv5's neck in the width of a size."""
    layers = tuple(backbone)
    start = len(layers)
    neck = _scale(_neck(stride_8, stride_16, start), size)
    return Architecture(label, (*layers, *neck), (start + 7, start + 10, start + 13), start)


def _yolov5(size: str) -> Architecture:
    return _with_neck(f"yolov5{size}", _scale(_YOLOV5_BACKBONE, size), 4, 6, size)


def _depthwise() -> Architecture:
    """Return YOLOv5n with depthwise-separable convolutions in place of the 3x3 ones of its backbone."""
    kinds = {"down": "separable down", "c3": "separable c3"}
    layers = (replace(layer, kind=kinds.get(layer.kind, layer.kind)) for layer in _scale(_YOLOV5_BACKBONE, "n"))
    return _with_neck("depthwise", layers, 4, 6, "n")


def _bneck(kernel: int, expanded: int, channels: int, squeeze_activation: str, stride: int) -> LayerSpec:
    """Return a row of the table of MobileNetV3-Small; "SE HS" is squeeze-and-excitation and hard-swish."""
    squeeze, activation = "SE" in squeeze_activation, "hardswish" if "HS" in squeeze_activation else "relu"
    return LayerSpec(
        "bneck", channels, kernel=kernel, stride=stride, expanded=expanded, squeeze=squeeze, activation=activation
    )


def _mobilenet() -> Architecture:
    """Return a detector on MobileNetV3-Small (Howard et al. 2019, table 2) without its classifier."""
    backbone = (
        LayerSpec("conv", 16, kernel=3, stride=2, activation="hardswish"),
        _bneck(3, 16, 16, "SE RE", 2),
        _bneck(3, 72, 24, "RE", 2),
        _bneck(3, 88, 24, "RE", 1),
        _bneck(5, 96, 40, "SE HS", 2),
        _bneck(5, 240, 40, "SE HS", 1),
        _bneck(5, 240, 40, "SE HS", 1),
        _bneck(5, 120, 48, "SE HS", 1),
        _bneck(5, 144, 48, "SE HS", 1),
        _bneck(5, 288, 96, "SE HS", 2),
        _bneck(5, 576, 96, "SE HS", 1),
        _bneck(5, 576, 96, "SE HS", 1),
        LayerSpec("sppf", 256),
    )
    return _with_neck("mobilenet", backbone, 3, 8, "n")


def _shufflenet() -> Architecture:
    """Return a detector on ShuffleNetV2 1.0x (Ma et al. 2018, table 5) without its classifier."""
    backbone = (
        LayerSpec("conv", 24, kernel=3, stride=2, activation="relu"),
        LayerSpec("max pool"),
        *_shuffle_stage(116, 4),
        *_shuffle_stage(232, 8),
        *_shuffle_stage(464, 4),
        LayerSpec("sppf", 256),
    )
    return _with_neck("shufflenet", backbone, 5, 13, "n")


def _shuffle_stage(channels: int, units: int) -> tuple[LayerSpec, ...]:
    return LayerSpec("shuffle down", channels), *[LayerSpec("shuffle", channels)] * (units - 1)


ARCHITECTURES = {
    **{size: _yolov5(size) for size in _YOLOV5_SIZES},
    "mobilenet": _mobilenet(),
    "shufflenet": _shufflenet(),
    "depthwise": _depthwise(),
}


def find_architecture(name: str) -> Architecture:
    """Return the architecture of a name.

    Raises:
        UsageError: there is none.
    """
    if name not in ARCHITECTURES:
        raise UsageError(f"{quote(name)} is not a network", f"choose one of {', '.join(ARCHITECTURES)}")
    return ARCHITECTURES[name]
