"""Static int8 quantization of an exported detector by ONNX Runtime."""

from __future__ import annotations

import contextlib
import logging
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...detect import OnnxMetadata
from .._onnx_file import convolutions, write_metadata

HEAD_LAYERS = 3  # the last convolutions: a scale for both boxes and scores would ruin the scores


class CalibrationImages:
    """The reader of calibration images that ONNX Runtime expects: an image per call, then None."""

    def __init__(self, images: NDArray[np.uint8]) -> None:
        self._images = iter(images)

    def get_next(self) -> dict[str, Any] | None:
        """Return the input of the next run."""
        image = next(self._images, None)
        return None if image is None else {"images": image[None].astype(np.float32) / 255}


def quantize_onnx(source: Path, path: Path, images: NDArray[np.uint8], metadata: OnnxMetadata) -> tuple[str, ...]:
    """Write an int8 version of an ONNX file; return the layers that stay in float.

    Activations are uint8 with one scale per tensor, weights int8 with one scale per channel. Weights use 7 of their 8
    bits, because CPUs without VNNI add pairs of products in 16 bits, which would overflow.
    """
    prepared = path.with_suffix(".prepared.onnx")
    with _quiet():
        from onnxruntime import quantization  # noqa: PLC0415  an extra
        from onnxruntime.quantization.shape_inference import quant_pre_process  # noqa: PLC0415

        # Symbolic shape inference fails on the sizes that are multiples of 32; quantization doesn't need its result.
        quant_pre_process(str(source), str(prepared), skip_symbolic_shape=True)
        quantization.quantize_static(
            str(prepared),
            str(path),
            CalibrationImages(images),
            quant_format=quantization.QuantFormat.QDQ,
            activation_type=quantization.QuantType.QUInt8,
            weight_type=quantization.QuantType.QInt8,
            per_channel=True,
            reduce_range=True,
            nodes_to_exclude=[layer.node for layer in convolutions(prepared)[-HEAD_LAYERS:]],
        )
    write_metadata(path, metadata)
    return tuple(_layer_name(layer.weight) for layer in convolutions(path) if not layer.is_quantized)


def _layer_name(weight: str) -> str:
    return weight.removeprefix("detector.").removesuffix(".weight")


@contextlib.contextmanager
def _quiet() -> Any:
    """Silence ONNX Runtime's hints, and keep what it prints out of standard output."""
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(sys.stderr):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)
