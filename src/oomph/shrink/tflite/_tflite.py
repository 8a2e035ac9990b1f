"""`oomph shrink tflite`: a Keras classifier as a TFLite file, measured before and after."""

from __future__ import annotations

import importlib.util
import os
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...data import BatchReader, ClassFolder, StretchedSamples, to_value_range
from ...errors import MissingFile, OomphError, UsageError, quote
from ...files import write_atomically
from ...units import MIB
from .._variants import Latency, OutputDifference, ShrinkResult, VariantReport
from ._process import run_task
from ._tasks import ConvertedModel, ConvertTask, RunTask, ValueRange

_PRECISIONS = ("dynamic", "float16", "int8")
_PACKAGES = ("tensorflow", "keras", "ai_edge_litert")
_VAL_FOLDERS = ("val", "validation", "test")
_IMAGES = 8  # for latency and memory
_BUDGET = 512 * MIB  # of decoding
_MAX_DIFFERENCE = 0.01  # of fp32 outputs; a correct file is a hundred times closer
_Log = Callable[[str], object]


@dataclass(frozen=True)
class TfliteRequest:
    """Request of a conversion.

    Attributes:
        weights: the .keras file of a classifier of images.
        data: a folder with train/ and val/ (or validation/, test/), each with a folder per class.
        precision: "dynamic" for 8-bit weights, "float16" for 16-bit weights, "int8" for 8-bit weights and activations.
        imgsz: image size, for a model of any size; None for that of the model.
        value_range: values of black and white that the model was trained with.
        out: the file; next to the weights if None.
    """

    weights: Path
    data: Path
    precision: str = "dynamic"
    imgsz: int | None = None
    value_range: ValueRange = (0, 255)
    out: Path | None = None

    @property
    def target(self) -> Path:
        """The file that is written."""
        return self.out or self.weights.with_name(f"{self.weights.stem}-{self.precision}.tflite")


def shrink_tflite(request: TfliteRequest, log: _Log = lambda _: None) -> ShrinkResult:
    """Convert a Keras model, run the file on all images of the val split, and measure it beside the original.

    The file is written only after it ran. An existing file of that name is replaced.

    Raises:
        MissingFile: a file or folder doesn't exist.
        UsageError: the weights aren't a Keras classifier of these classes, there is nothing to calibrate with, the
            folder isn't writable, or a package is missing.
        OomphError: the model can't be converted, or the file can't be run.
    """
    if request.precision not in _PRECISIONS:
        raise UsageError(f"the precision is {quote(request.precision)}", f"use one of {', '.join(_PRECISIONS)}")
    _check_packages()
    _check_weights(request.weights)
    _check_target(request.target)
    train = ClassFolder.open(request.data / "train")
    val_folder = _val_folder(request.data)
    val = ClassFolder.open(val_folder, train.names)
    with tempfile.TemporaryDirectory(prefix="oomph-shrink-") as folder:
        log(f"converting to {request.precision}")
        model = _convert(request, train.names, Path(folder))
        if model.calibration_images:
            log(f"calibrated on {model.calibration_images} training images")
        bench = _Bench(request, model, val, val_folder, Path(folder))
        converted = Path(folder) / f"{request.precision}.tflite"
        bench.add("Keras fp32", request.weights)
        bench.add("TFLite fp32", Path(folder) / "fp32.tflite")
        _check_difference(request, bench.differences[0])
        bench.add(f"TFLite {request.precision}", converted)
        _write(converted, request.target)
        return bench.result()


def _convert(request: TfliteRequest, names: tuple[str, ...], folder: Path) -> ConvertedModel:
    task = ConvertTask(
        weights=str(request.weights),
        train=str(request.data / "train"),
        names=names,
        precision=request.precision,
        imgsz=request.imgsz,
        value_range=request.value_range,
        folder=str(folder),
    )
    answer = run_task("_convert_process", task)
    return ConvertedModel(**{**answer, "size": tuple(answer["size"]), "parameters": tuple(answer["parameters"])})


class _Bench:
    """Measures variants of a classifier on the same images, the original first."""

    def __init__(
        self, request: TfliteRequest, model: ConvertedModel, val: ClassFolder, val_folder: Path, folder: Path
    ) -> None:
        self._request, self._model, self._val, self._val_folder = request, model, val, val_folder
        self._folder = folder
        self._inputs = folder / "inputs.npy"
        np.save(self._inputs, _sample_inputs(val, model.size, request))
        self._outputs: list[NDArray[np.float32]] = []
        self.variants: list[VariantReport] = []
        self.differences: list[OutputDifference] = []

    def add(self, name: str, file: Path) -> None:
        """Measure a variant, and compare its outputs with those of the first."""
        task = RunTask(
            file=str(file),
            inputs=str(self._inputs),
            folder=str(self._val_folder),
            names=self._val.names,
            size=self._model.size,
            value_range=self._request.value_range,
            outputs=str(self._folder / "outputs.npz"),
        )
        answer = run_task("_run_process", task)
        with np.load(task.outputs) as written:
            outputs, indices = written["outputs"], written["indices"]
        variant = VariantReport(
            name=name,
            file=str(file),
            file_bytes=file.stat().st_size,
            parameters=self._model.parameters[len(self.variants)],
            memory=answer["memory"],
            latency=Latency.of(answer["seconds"], task.threads),
            scores={"accuracy": accuracy(outputs, self._val.classes[indices], self._model.threshold)},
        )
        self.variants.append(variant)
        self._outputs.append(outputs)
        if len(self.variants) > 1:
            difference = np.abs(outputs - self._outputs[0])
            self.differences.append(
                OutputDifference(name, float(difference.max()), float(difference.mean()), len(outputs))
            )

    def result(self) -> ShrinkResult:
        """Return the result; the last variant is the file that was written."""
        first, fp32, last = self.variants
        variants = (first, replace(fp32, file=None), replace(last, file=str(self._request.target)))
        return ShrinkResult("tflite", max(self._model.size), self._val_folder.name, variants, tuple(self.differences))


def accuracy(outputs: NDArray[np.float32], classes: NDArray[np.int64], threshold: float | None) -> float:
    """Return the fraction of images whose class is predicted: the largest output, or a single one above a threshold."""
    predicted = outputs.argmax(1) if threshold is None else outputs[:, 0] > threshold
    return float((predicted == classes).mean())


def _sample_inputs(val: ClassFolder, size: tuple[int, int], request: TfliteRequest) -> NDArray[np.float32]:
    reader = BatchReader(val.index, size, _IMAGES, _BUDGET, builder=StretchedSamples(), shuffle=True)
    return to_value_range(reader.read(0, 0).images, request.value_range)


def _check_packages() -> None:
    missing = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(
            f"TFLite needs packages that aren't installed ({', '.join(missing)})", "run `pip install 'oomph[keras]'`"
        )


def _check_weights(weights: Path) -> None:
    if not weights.is_file():
        raise MissingFile(f"there is no file '{weights}'", "pass the .keras file of a model")
    if not zipfile.is_zipfile(weights) or weights.suffix != ".keras":
        raise UsageError(f"'{weights}' is not a .keras file", "save the model by model.save('name.keras')")


def _val_folder(data: Path) -> Path:
    for name in _VAL_FOLDERS:
        if (data / name).is_dir():
            return data / name
    raise MissingFile(f"there is no folder 'val' in '{data}'", "put some images of each class there")


def _check_target(target: Path) -> None:
    if target.suffix != ".tflite":
        raise UsageError(f"the output file is '{target}'", "use a name that ends in .tflite")
    if target.is_dir() or not target.parent.is_dir() or not os.access(target.parent, os.W_OK):
        raise UsageError(f"'{target}' can't be written", "pass a file in an existing folder that is writable")


def _check_difference(request: TfliteRequest, difference: OutputDifference) -> None:
    if not difference.largest <= _MAX_DIFFERENCE:  # NaN too
        raise OomphError(
            f"the outputs of the converted file differ from those of '{request.weights}' by up to "
            f"{difference.largest:g}",
            "check the weights for NaN, and report this",
        )


def _write(source: Path, target: Path) -> None:
    try:
        write_atomically(target, lambda file: file.write(source.read_bytes()))
    except OSError as error:
        raise UsageError(f"'{target}' can't be written ({error.strerror})", "pass another --out") from None
