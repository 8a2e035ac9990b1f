"""The network that is exported, and its metadata."""

from __future__ import annotations

import torch
from torch import nn

from ...detect import STRIDES, ExportMetadata, HeadOutputs, Weights


def build_network(weights: Weights) -> HeadOutputs:
    """Build a detector up to the head's convolutions, in eval mode."""
    return HeadOutputs(weights.build()).eval()


def metadata_of(weights: Weights, imgsz: int, precision: str) -> ExportMetadata:
    """Return the metadata of a detector's file; classes without names are numbered."""
    detector = weights.build()
    anchors = detector.head.anchors * torch.tensor(STRIDES).view(-1, 1, 1)
    names = weights.names or tuple(str(number) for number in range(weights.classes))
    return ExportMetadata(names, anchors.tolist(), STRIDES, imgsz, precision, count_folded_parameters(detector))


def count_folded_parameters(network: nn.Module) -> int:
    """Return the number of weights and biases after each BatchNorm became the bias of its convolution."""
    count = 0
    for module in network.modules():
        if not isinstance(module, nn.BatchNorm2d):
            count += sum(parameter.numel() for parameter in module.parameters(recurse=False))
        if isinstance(module, nn.Conv2d) and module.bias is None:
            count += module.out_channels
    return count


def layer_name(weight: str) -> str:
    """Return the name of a layer in the weights file by the name of its weight in `HeadOutputs`."""
    return weight.removeprefix("detector.").removesuffix(".weight")
