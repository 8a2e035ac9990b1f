"""Static int8 quantization of a detector for ExecuTorch, by torchao's PT2E."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ...detect import HeadOutputs
from ._executorch_export import export_program, write_program
from ._export import Quantization
from ._network import build_network, layer_name, metadata_of
from ._quiet import quiet


@torch.no_grad()
def quantize_executorch(task: Quantization) -> tuple[str, ...]:
    """Write an int8 ExecuTorch program; return the layers that stay in float.

    Activations are int8 with one scale per tensor, weights int8 with one scale per channel.
    """
    with quiet():
        from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (  # noqa: PLC0415  an extra
            XNNPACKQuantizer,
            get_symmetric_quantization_config,
        )
        from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e  # noqa: PLC0415

        network = build_network(task.weights)
        quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True))
        quantizer.set_filter_function(_outside(_head_layers(network)))
        prepared = prepare_pt2e(export_program(network, task.imgsz).module(), quantizer)
        for image in task.images:
            prepared(torch.from_numpy(image[None]).float() / 255)
        quantized = convert_pt2e(prepared)
        program = export_program(quantized, task.imgsz)
        write_program(program, task.path, metadata_of(task.weights, task.imgsz, "int8"))
    return float_convolutions(quantized)


def _head_layers(network: HeadOutputs) -> frozenset[str]:
    """Return the names of the head's convolutions: a scale for both boxes and scores would ruin the scores."""
    head = set(network.detector.head.m)
    return frozenset(name for name, module in network.named_modules() if module in head)


def _outside(layers: frozenset[str]) -> Callable[[Any], bool]:
    """Return a filter of graph nodes that don't belong to some layers."""

    def is_outside(node: Any) -> bool:
        owners = (node.meta.get("nn_module_stack") or {}).values()
        return layers.isdisjoint(path for path, _ in owners)

    return is_outside


def float_convolutions(quantized: nn.Module) -> tuple[str, ...]:
    """Return the convolutions of a converted graph whose weights are floats."""
    graph: Any = quantized.graph
    convolutions = [node for node in graph.nodes if node.target is torch.ops.aten.conv2d.default]
    weights = [node.args[1] for node in convolutions]
    return tuple(layer_name(str(weight.target)) for weight in weights if weight.op == "get_attr")
