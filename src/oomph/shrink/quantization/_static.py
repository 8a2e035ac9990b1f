"""Static int8 of any module: an ONNX file, calibrated and run by ONNX Runtime."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import OomphError, UsageError, shorten
from ..export import ONNX, check_target, quantize_static, quiet, write_file
from ._layers import outputs_of, relative_difference, weight_bytes

_LAYERS = {"Conv", "ConvTranspose", "Gemm", "MatMul"}
Inputs = tuple[Tensor, ...]


@dataclass(frozen=True)
class Int8File:
    """An int8 ONNX file of a model.

    Attributes:
        path: the file.
        file_bytes: its size.
        weight_bytes: bytes of the model's parameters and buffers.
        quantized_layers: number of layers with int8 weights.
        float_layers: names of the layers that stay in float.
        difference: largest difference of the file's outputs from the model's, relative to the largest output.
    """

    path: str
    file_bytes: int
    weight_bytes: int
    quantized_layers: int
    float_layers: tuple[str, ...]
    difference: float


def quantize_to_onnx(
    model: nn.Module, calibration: Sequence[Inputs], path: Path, dynamic_shapes: Any = None
) -> Int8File:
    """Write a model as an ONNX file with int8 convolutions and linear layers; the model itself is not changed.

    The file is written only after ONNX Runtime ran it. An existing file of that name is replaced.

    Args:
        model: the model, in float.
        calibration: positional inputs, which the ranges of the activations are taken from.
        path: the file, which ends in .onnx.
        dynamic_shapes: as for `torch.onnx.export`; the sizes of the calibration data if None.

    Raises:
        UsageError: there is nothing to calibrate with, no layer can be quantized, torch can't export the model, the
            file can't be written, or a package is missing.
        OomphError: ONNX Runtime can't quantize or run the file.
    """
    check_target(ONNX, path)
    if not calibration:
        raise UsageError("there are no inputs to calibrate with", "pass at least one tuple of inputs")
    network = copy.deepcopy(model).cpu().eval()
    runs = [tuple(tensor.cpu() for tensor in inputs) for inputs in calibration]
    with tempfile.TemporaryDirectory(prefix="oomph-shrink-") as folder:
        exported, quantized = Path(folder) / "float.onnx", Path(folder) / "int8.onnx"
        names = _export(network, runs[0], exported, dynamic_shapes)
        try:
            quantize_static(exported, quantized, (_by_name(names, inputs) for inputs in runs))
            outputs = _run(quantized, _by_name(names, runs[0]))
        except Exception as error:
            reason = shorten(f"{type(error).__name__}: {error}", 200)
            raise OomphError(f"ONNX Runtime can't quantize the model ({reason})", "report this") from error
        layers = _layers(quantized)
        if not any(layers.values()):
            raise UsageError("the model has no convolution or linear layer", "use another method")
        expected = tuple(_leaves(outputs_of(network, runs[0])))
        write_file(quantized, path)
    return Int8File(
        path=str(path),
        file_bytes=path.stat().st_size,
        weight_bytes=weight_bytes(network),
        quantized_layers=sum(layers.values()),
        float_layers=tuple(name for name, is_quantized in layers.items() if not is_quantized),
        difference=relative_difference(expected, outputs),
    )


def _leaves(outputs: Any) -> list[Tensor]:
    return [leaf for leaf in torch.utils._pytree.tree_leaves(outputs) if isinstance(leaf, Tensor)]  # noqa: SLF001


def _export(network: nn.Module, inputs: Inputs, path: Path, dynamic_shapes: Any) -> list[str]:
    """Write a module to an ONNX file; return the names of its inputs."""
    try:
        with quiet():
            program = torch.onnx.export(network, inputs, dynamo=True, dynamic_shapes=dynamic_shapes, verbose=False)
    except Exception as error:
        reason = shorten(str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__, 200)
        raise UsageError(f"torch can't export the model ({reason})", "make its forward exportable") from error
    assert program is not None  # noqa: S101  dynamo=True returns a program
    program.save(str(path), external_data=False)
    return [str(value.name) for value in program.model.graph.inputs]


def _by_name(names: Sequence[str], inputs: Inputs) -> dict[str, Any]:
    return {name: tensor.numpy() for name, tensor in zip(names, inputs, strict=True)}


def _run(path: Path, inputs: dict[str, Any]) -> list[Tensor]:
    import onnxruntime  # noqa: PLC0415  an extra

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return [torch.from_numpy(output) for output in session.run(None, inputs)]


def _layers(path: Path) -> dict[str, bool]:
    """Return the layers of a file by name, with True for those whose weight is stored as integers."""
    import onnx  # noqa: PLC0415

    graph = onnx.load(path).graph
    stored = {tensor.name for tensor in graph.initializer}
    dequantized = {node.output[0]: node.input[0] for node in graph.node if node.op_type == "DequantizeLinear"}
    weights = [node.input[1] for node in graph.node if node.op_type in _LAYERS]
    return {
        name.removesuffix("_DequantizeLinear_Output").removesuffix(".weight"): name in dequantized
        for name in weights
        if dequantized.get(name, name) in stored  # a product of two activations has no weight
    }
