"""`oomph shrink onnx`: a detector as an ONNX file, in fp32 or int8, measured before and after."""

from __future__ import annotations

import importlib.util
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...detect import EXPORT_EXTRA, Weights, is_onnx, read_dataset, read_weights, round_to_stride
from ...errors import OomphError, UsageError
from ...files import write_atomically
from .._images import sample_images
from .._measure import Bench
from .._variants import OutputDifference, ShrinkResult
from ._onnx_export import export_onnx, metadata_of
from ._onnx_int8 import quantize_onnx

_PACKAGES = ("onnx", "onnxscript", "onnxruntime")
_CALIBRATION_IMAGES = 64
_MAX_DIFFERENCE = 0.01  # of raw outputs in fp32; a correct file is a hundred times closer
_Log = Callable[[str], object]


@dataclass(frozen=True)
class OnnxRequest:
    """Request of an export.

    Attributes:
        weights: the detector.
        data: the data.yaml: mAP is measured on its val split, int8 is calibrated on its train split.
        imgsz: image size of measurements and calibration.
        int8: quantize.
        out: the file; next to the weights if None.
    """

    weights: Path
    data: Path
    imgsz: int = 640
    int8: bool = False
    out: Path | None = None

    @property
    def target(self) -> Path:
        """The file that is written."""
        return self.out or self.weights.with_name(f"{self.weights.stem}{'-int8' if self.int8 else ''}.onnx")


def shrink_onnx(request: OnnxRequest, log: _Log = lambda _: None) -> ShrinkResult:
    """Export a detector, run the file, and measure it beside the original.

    The file is written only after it ran. An existing file of that name is replaced.

    Raises:
        MissingFile: a file doesn't exist.
        UsageError: the weights aren't a detector, there is nothing to calibrate with, the folder isn't writable, or
            a package is missing.
        OomphError: the exported file can't be run, or its outputs are others.
    """
    weights = read_detector(request)
    request = replace(request, imgsz=round_to_stride(request.imgsz))
    with tempfile.TemporaryDirectory(prefix="oomph-shrink-") as folder:
        return _export(request, weights, Path(folder), log)


def read_detector(request: OnnxRequest) -> Weights:
    """Check a request before any work is done, and return the weights.

    Raises:
        MissingFile: a file doesn't exist.
        UsageError: the weights aren't a detector of this data, the file can't be written, or a package is missing.
    """
    _check_packages()
    if is_onnx(request.weights):
        raise UsageError(f"{request.weights} is an ONNX file already", "pass the .pt file that it was exported from")
    weights = read_weights(request.weights)
    _check_classes(weights, request.data)
    check_onnx_target(request.target)
    return weights


def _export(request: OnnxRequest, weights: Weights, folder: Path, log: _Log) -> ShrinkResult:
    calibration = calibration_images(request) if request.int8 else None
    bench = Bench(request.data, request.imgsz, folder)
    bench.add("PyTorch fp32", request.weights)
    log("exporting")
    exported = folder / "fp32.onnx"
    export_onnx(weights, exported, request.imgsz)
    bench.add("ONNX fp32", exported)
    _check_outputs(request, bench.differences[0])
    if calibration is None:
        write_file(exported, request.target)
        return _result(request, bench)
    log(f"quantizing, calibrated on {len(calibration)} training images")
    quantized = folder / "int8.onnx"
    float_layers = quantize_onnx(exported, quantized, calibration, metadata_of(weights, request.imgsz, "int8"))
    bench.add("ONNX int8", quantized)
    write_file(quantized, request.target)
    return _result(request, bench, float_layers)


def _result(request: OnnxRequest, bench: Bench, float_layers: tuple[str, ...] = ()) -> ShrinkResult:
    """Return the result; the last variant is the file that was written."""
    first, *middle, last = bench.variants
    temporary = (replace(variant, file=None) for variant in middle)
    variants = (first, *temporary, replace(last, file=str(request.target)))
    return ShrinkResult("onnx", request.imgsz, bench.split, variants, tuple(bench.differences), float_layers)


def _check_packages() -> None:
    missing = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(f"ONNX needs packages that aren't installed ({', '.join(missing)})", EXPORT_EXTRA)


def _check_classes(weights: Weights, data: Path) -> None:
    names = read_dataset(data).names
    if weights.classes not in {1, len(names)}:
        raise UsageError(
            f"the weights have {weights.classes} classes and {data} has {len(names)}",
            "use the data that the weights were trained on",
        )


def check_onnx_target(target: Path) -> None:
    """Check that an ONNX file can be written.

    Raises:
        UsageError: its name or folder can't be used, or a package is missing.
    """
    _check_packages()
    if not is_onnx(target):
        raise UsageError(f"the output file is '{target}'", "use a name that ends in .onnx")
    if target.is_dir() or not target.parent.is_dir() or not os.access(target.parent, os.W_OK):
        raise UsageError(f"'{target}' can't be written", "pass a file in an existing folder that is writable")


def calibration_images(request: OnnxRequest) -> NDArray[np.uint8]:
    """Return images of the train split.

    Raises:
        UsageError: there are none.
    """
    try:
        return sample_images(request.data, "train", request.imgsz, _CALIBRATION_IMAGES)
    except UsageError as error:
        raise UsageError(f"there are no images to calibrate with: {error.why}", error.fix) from None


def _check_outputs(request: OnnxRequest, difference: OutputDifference) -> None:
    if not difference.largest <= _MAX_DIFFERENCE:  # NaN too
        raise OomphError(
            f"the outputs of the exported file differ from those of {request.weights} by up to {difference.largest:g}",
            "check the weights for NaN with `oomph val`, and report this",
        )


def write_file(source: Path, target: Path) -> None:
    """Write a copy of a file, complete or not at all.

    Raises:
        UsageError: the disk is full, or the folder isn't writable.
    """
    try:
        write_atomically(target, lambda file: file.write(source.read_bytes()))
    except OSError as error:
        raise UsageError(f"'{target}' can't be written ({error.strerror})", "pass another --out") from None
