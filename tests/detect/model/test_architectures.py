from __future__ import annotations

import pytest
import torch

from oomph.detect import ARCHITECTURES, yolov5
from oomph.detect.model import find_architecture
from oomph.errors import UsageError


def test_names_and_labels() -> None:
    assert list(ARCHITECTURES) == ["n", "s", "m", "l", "x", "mobilenet", "shufflenet", "depthwise"]
    labels = [architecture.label for architecture in ARCHITECTURES.values()]
    assert labels[:5] == ["yolov5n", "yolov5s", "yolov5m", "yolov5l", "yolov5x"]
    assert labels[5:] == ["mobilenet", "shufflenet", "depthwise"]
    with pytest.raises(UsageError, match="'q' is not a network; choose one of n, s, m, l, x, mobilenet"):
        find_architecture("q")


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_saved_layer_is_read_once(name: str) -> None:
    architecture = ARCHITECTURES[name]
    reads = [index for layer in architecture.layers for index in layer.inputs if index >= 0]
    reads += architecture.levels
    assert len(reads) == len(set(reads)) == 7  # twice from the backbone, twice inside the neck, three levels
    assert architecture.saved_layers == set(reads)
    assert architecture.levels[-1] == architecture.head_index - 1


# Parameters of the papers' classifiers, minus what a detector doesn't have:
# MobileNetV3-Small: 2,542,856 (2.5 M in table 3), minus the 1x1 convolution to 576 channels (56,448) and the
# classifier (576 to 1024 to 1000: 1,615,848).
# ShuffleNetV2 1.0x: 2,278,604 (2.3 M in table 5), minus Conv5 (477,184) and the classifier (1,025,000).
# depthwise: YOLOv5n (881,760); each 3x3 convolution of a x b weights becomes 9 a + a b, with a BatchNorm of 2 a more.
BACKBONES = {"mobilenet": 870_560, "shufflenet": 776_420, "depthwise": 292_832}


@pytest.mark.parametrize("name", BACKBONES)
def test_backbones_have_the_parameters_of_the_papers(name: str) -> None:
    with torch.device("meta"):
        layers = yolov5(name).model
    last = ARCHITECTURES[name].backbone - 1  # the SPPF is YOLOv5's
    assert sum(parameter.numel() for layer in layers[:last] for parameter in layer.parameters()) == BACKBONES[name]


def test_depthwise_is_yolov5n_with_separable_convolutions_in_the_backbone() -> None:
    with torch.device("meta"):
        dense, separable = yolov5("n"), yolov5("depthwise")
    saved = 0
    for inputs, outputs, count in ((16, 32, 1), (32, 64, 1), (64, 128, 1), (128, 256, 1)):  # downsampling
        saved += count * (9 * inputs * outputs - (9 * inputs + inputs * outputs + 2 * inputs))
    for hidden, count in ((16, 1), (32, 2), (64, 3), (128, 1)):  # in bottlenecks
        saved += count * (9 * hidden * hidden - (9 * hidden + hidden * hidden + 2 * hidden))
    dense_count, separable_count = (sum(p.numel() for p in model.parameters()) for model in (dense, separable))
    assert dense_count - separable_count == saved
    assert {name: value.shape for name, value in dense.model[10:].state_dict().items()} == {
        name: value.shape for name, value in separable.model[10:].state_dict().items()
    }
