"""Export of a detector to a file of another runtime, measured before and after: the steps that all formats share."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...detect import (
    EXPORT_FORMATS,
    ExportFormat,
    Weights,
    is_exported,
    read_dataset,
    read_weights,
    round_to_stride,
)
from ...errors import OomphError, UsageError, describe
from ...files import write_atomically
from .._images import sample_images
from .._measure import Bench
from .._variants import OutputDifference, ShrinkResult

_CALIBRATION_IMAGES = 64
_MAX_DIFFERENCE = 0.01  # of raw outputs in fp32; a correct file is a hundred times closer
Log = Callable[[str], object]


@dataclass(frozen=True)
class ExportRequest:
    """Request of an export.

    Attributes:
        weights: the detector.
        data: the data.yaml: mAP is measured on its val split, int8 is calibrated on its train split.
        imgsz: image size of measurements and calibration, and the largest one of formats that need a limit.
        int8: quantize.
        out: the file; next to the weights if None.
    """

    weights: Path
    data: Path
    imgsz: int = 640
    int8: bool = False
    out: Path | None = None


@dataclass(frozen=True)
class Quantization:
    """Request of an int8 file.

    Attributes:
        weights: the detector.
        exported: its fp32 file in the same format.
        path: the file to write.
        images: calibration images (n, 3, imgsz, imgsz).
        imgsz: image size.
    """

    weights: Weights
    exported: Path
    path: Path
    images: NDArray[np.uint8]
    imgsz: int


@dataclass(frozen=True)
class Exporter:
    """Functions that write the files of a format.

    Attributes:
        method: name of the method.
        suffix: suffix of its files.
        modules: modules that it imports.
        export: writes an fp32 file of weights for an image size.
        quantize: writes an int8 file and returns the layers that stay in float.
    """

    method: str
    suffix: str
    modules: tuple[str, ...]
    export: Callable[[Weights, Path, int], None]
    quantize: Callable[[Quantization], tuple[str, ...]]

    @property
    def format(self) -> ExportFormat:
        """The format of its files."""
        return EXPORT_FORMATS[self.suffix]

    def target(self, request: ExportRequest) -> Path:
        """Return the file that is written."""
        name = f"{request.weights.stem}{'-int8' if request.int8 else ''}{self.suffix}"
        return request.out or request.weights.with_name(name)


def shrink_by_export(exporter: Exporter, request: ExportRequest, log: Log) -> ShrinkResult:
    """Export a detector, run the file, and measure it beside the original.

    The file is written only after it ran. An existing file of that name is replaced.

    Raises:
        MissingFile: a file doesn't exist.
        UsageError: the weights aren't a detector, there is nothing to calibrate with, the folder isn't writable, or
            a package is missing.
        OomphError: the format doesn't have a layer, the exported file can't be run, or its outputs are others.
    """
    weights = read_detector(exporter, request)
    request = replace(request, imgsz=round_to_stride(request.imgsz), out=exporter.target(request))
    with tempfile.TemporaryDirectory(prefix="oomph-shrink-") as folder:
        return _export(exporter, request, weights, Path(folder), log)


def read_detector(exporter: Exporter, request: ExportRequest) -> Weights:
    """Check a request before any work is done, and return the weights.

    Raises:
        MissingFile: a file doesn't exist.
        UsageError: the weights aren't a detector of this data, the file can't be written, or a package is missing.
    """
    _check_packages(exporter)
    if is_exported(request.weights):
        raise UsageError(
            f"{request.weights} is an exported file already", "pass the .pt file that it was exported from"
        )
    weights = read_weights(request.weights)
    _check_classes(weights, request.data)
    check_target(exporter, exporter.target(request))
    return weights


def _export(exporter: Exporter, request: ExportRequest, weights: Weights, folder: Path, log: Log) -> ShrinkResult:
    calibration = calibration_images(request) if request.int8 else None
    bench = Bench(request.data, request.imgsz, folder)
    bench.add("PyTorch fp32", request.weights)
    log("exporting")
    path = folder / f"fp32{exporter.suffix}"
    float_layers: tuple[str, ...] = ()
    with _conversion(exporter, "export"):
        exporter.export(weights, path, request.imgsz)
    bench.add(f"{exporter.format.name} fp32", path)
    _check_outputs(request, bench.differences[0])
    if calibration is not None:
        log(f"quantizing, calibrated on {len(calibration)} training images")
        task = Quantization(weights, path, folder / f"int8{exporter.suffix}", calibration, request.imgsz)
        with _conversion(exporter, "quantize"):
            float_layers = exporter.quantize(task)
        path = task.path
        bench.add(f"{exporter.format.name} int8", path)
    target = exporter.target(request)
    write_file(path, target)
    first, *middle, last = bench.variants
    variants = (first, *(replace(variant, file=None) for variant in middle), replace(last, file=str(target)))
    differences = tuple(bench.differences)
    return ShrinkResult(exporter.method, request.imgsz, bench.split, variants, differences, float_layers)


@contextlib.contextmanager
def _conversion(exporter: Exporter, verb: str) -> Iterator[None]:
    """Turn the exceptions of a converter, which doesn't know every layer, into one sentence."""
    try:
        yield
    except OomphError:
        raise
    except Exception as error:
        raise OomphError(
            f"{exporter.format.name} can't {verb} this network ({describe(error)})",
            "use another format, or omit --int8" if verb == "quantize" else "use another format",
        ) from error


def _check_packages(exporter: Exporter) -> None:
    missing = [name for name in exporter.modules if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(
            f"{exporter.format.name} needs packages that aren't installed ({', '.join(missing)})", exporter.format.fix
        )


def _check_classes(weights: Weights, data: Path) -> None:
    names = read_dataset(data).names
    if weights.classes not in {1, len(names)}:
        raise UsageError(
            f"the weights have {weights.classes} classes and {data} has {len(names)}",
            "use the data that the weights were trained on",
        )


def check_target(exporter: Exporter, target: Path) -> None:
    """Check that a file of a format can be written.

    Raises:
        UsageError: its name or folder can't be used, or a package is missing.
    """
    _check_packages(exporter)
    if target.suffix.lower() != exporter.suffix:
        raise UsageError(f"the output file is '{target}'", f"use a name that ends in {exporter.suffix}")
    if target.is_dir() or not target.parent.is_dir() or not os.access(target.parent, os.W_OK):
        raise UsageError(f"'{target}' can't be written", "pass a file in an existing folder that is writable")


def calibration_images(request: ExportRequest) -> NDArray[np.uint8]:
    """Return images of the train split.

    Raises:
        UsageError: there are none.
    """
    try:
        return sample_images(request.data, "train", request.imgsz, _CALIBRATION_IMAGES)
    except UsageError as error:
        raise UsageError(f"there are no images to calibrate with: {error.why}", error.fix) from None


def _check_outputs(request: ExportRequest, difference: OutputDifference) -> None:
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
