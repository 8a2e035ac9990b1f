"""Static int8 quantization of ONNX files by ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from ._export import Quantization
from ._network import layer_name, metadata_of
from ._onnx_file import convolutions, write_metadata
from ._quiet import quiet

HEAD_LAYERS = 3  # the last convolutions: a scale for both boxes and scores would ruin the scores


class _Calibration:
    """The reader of calibration data that ONNX Runtime expects: the inputs of a run per call, then None."""

    def __init__(self, runs: Iterable[dict[str, Any]]) -> None:
        self._runs = iter(runs)

    def get_next(self) -> dict[str, Any] | None:
        """Return the inputs of the next run by name."""
        return next(self._runs, None)


def quantize_onnx(task: Quantization) -> tuple[str, ...]:
    """Write an int8 version of a detector's ONNX file; return the layers that stay in float."""
    runs = ({"images": image[None].astype(np.float32) / 255} for image in task.images)
    quantize_static(
        task.exported, task.path, runs, lambda file: [layer.node for layer in convolutions(file)[-HEAD_LAYERS:]]
    )
    write_metadata(task.path, metadata_of(task.weights, task.imgsz, "int8"))
    return tuple(layer_name(layer.weight) for layer in convolutions(task.path) if not layer.is_quantized)


def quantize_static(
    source: Path, path: Path, runs: Iterable[dict[str, Any]], float_nodes: Callable[[Path], list[str]] = lambda _: []
) -> None:
    """Write an int8 version of an ONNX file.

    Activations are uint8 with one scale per tensor, weights int8 with one scale per channel. Weights use 7 of their 8
    bits, because CPUs without VNNI add pairs of products in 16 bits, which would overflow.

    Args:
        source: the file in float.
        path: the file to write.
        runs: inputs by name, to calibrate with.
        float_nodes: returns the names of nodes that stay in float, given the file as it is quantized.
    """
    prepared = path.with_suffix(".prepared.onnx")
    with quiet():
        from onnxruntime import quantization  # noqa: PLC0415  an extra
        from onnxruntime.quantization.shape_inference import quant_pre_process  # noqa: PLC0415

        # Symbolic shape inference fails on the sizes that are multiples of 32; quantization doesn't need its result.
        quant_pre_process(str(source), str(prepared), skip_symbolic_shape=True)
        quantization.quantize_static(
            str(prepared),
            str(path),
            _Calibration(runs),
            quant_format=quantization.QuantFormat.QDQ,
            activation_type=quantization.QuantType.QUInt8,
            weight_type=quantization.QuantType.QInt8,
            per_channel=True,
            reduce_range=True,
            nodes_to_exclude=float_nodes(prepared),
        )
