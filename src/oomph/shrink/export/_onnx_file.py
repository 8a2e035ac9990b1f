"""Contents of an ONNX file: metadata and convolutions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...detect import ExportMetadata


@dataclass(frozen=True)
class Convolution:
    """A convolution of a file.

    Attributes:
        node: name of its node.
        weight: name of its weight.
        parameters: number of weights and biases.
        is_quantized: True if its weight is stored as integers.
    """

    node: str
    weight: str
    parameters: int
    is_quantized: bool


def write_metadata(path: Path, metadata: ExportMetadata) -> None:
    """Store the metadata of a detector in an ONNX file, in place."""
    import onnx  # noqa: PLC0415  an extra

    model = onnx.load(path)
    _drop_traces_of_export(model)
    onnx.helper.set_model_props(model, metadata.encode())
    onnx.save(model, path)


def convolutions(path: Path) -> list[Convolution]:
    """Return the convolutions of an ONNX file, in order."""
    import onnx  # noqa: PLC0415

    graph = onnx.load(path).graph
    sizes = {tensor.name: math.prod(tensor.dims) for tensor in graph.initializer}
    dequantized = {node.output[0]: node.input[0] for node in graph.node if node.op_type == "DequantizeLinear"}
    return list(_convolutions(graph, sizes, dequantized))


def _convolutions(graph: Any, sizes: dict[str, int], dequantized: dict[str, str]) -> Iterator[Convolution]:
    for node in graph.node:
        if node.op_type == "Conv":
            stored = [dequantized.get(name, name) for name in node.input[1:]]
            parameters = sum(sizes[name] for name in stored)
            yield Convolution(node.name, node.input[1], parameters, stored[0] != node.input[1])


def _drop_traces_of_export(model: Any) -> None:
    """Remove what the exporter notes about each node: source lines and paths of this machine."""
    for item in (model.graph, *model.graph.node, *model.graph.value_info, *model.graph.input, *model.graph.output):
        del item.metadata_props[:]
        if hasattr(item, "doc_string"):
            item.doc_string = ""
    for tensor in model.graph.initializer:
        del tensor.metadata_props[:]
