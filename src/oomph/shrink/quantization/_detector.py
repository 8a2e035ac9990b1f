"""`oomph shrink quantize`: a detector as an int8 ONNX file, by calibration or after quantization-aware training."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...detect import (
    Hyperparameters,
    ProgressCallback,
    TrainConfig,
    TrainResult,
    Weights,
    read_dataset,
    read_settings,
    read_weights,
    round_to_stride,
)
from ...errors import UsageError
from .._measure import Bench
from .._variants import ShrinkResult, TrainingMemory
from ..export import (
    OnnxRequest,
    calibration_images,
    export_onnx,
    metadata_of,
    quantize_onnx,
    read_detector,
    shrink_onnx,
    write_file,
)
from ._training import train_aware

# A trained network needs small steps and no warm-up.
_HYPERPARAMETERS = Hyperparameters(lr0=1e-3, lrf=0.1, warmup_epochs=0.0)


@dataclass(frozen=True)
class QuantizeRequest:
    """Request of a quantization.

    Attributes:
        weights: the detector.
        data: the data.yaml: mAP is measured on its val split; its train split is for calibration and training.
        imgsz: image size of training, measurements and calibration.
        epochs: epochs of quantization-aware training; 0 only calibrates.
        out: the file; next to the weights if None.
        batch: images per iteration of the training.
        device: where it is trained: "cpu", "cuda" or "cuda:1"; the first GPU, or the CPU, if None.
        budget: memory in bytes that the training may use; all of it if None.
        settings: a settings file of `oomph train` for the training.
    """

    weights: Path
    data: Path
    imgsz: int = 640
    epochs: int = 0
    out: Path | None = None
    batch: int = 16
    device: str | None = None
    budget: int | None = None
    settings: Path | None = None

    def __post_init__(self) -> None:
        if self.epochs < 0:
            raise UsageError(f"epochs is {self.epochs}", "use 0 to calibrate, or more to train")

    @property
    def target(self) -> Path:
        """The file that is written."""
        return self.out or self.weights.with_name(f"{self.weights.stem}-int8{'-qat' if self.epochs else ''}.onnx")

    @property
    def run_dir(self) -> Path:
        """The folder of the training, which is kept, so that the same command continues it."""
        return self.target.with_suffix("")

    @property
    def onnx(self) -> OnnxRequest:
        """The export."""
        return OnnxRequest(self.weights, self.data, self.imgsz, int8=True, out=self.target)


def shrink_quantize(request: QuantizeRequest, progress: ProgressCallback) -> ShrinkResult:
    """Quantize a detector, run the file, and measure it beside the original.

    The file is written only after it ran. A training that was interrupted continues.

    Raises:
        MissingFile: a file doesn't exist.
        UsageError: the weights aren't a detector, there is nothing to calibrate with, the folder isn't writable, a
            package is missing, or the folder of the training has another one.
        CannotFit: the training doesn't fit the budget.
        OomphError: the file can't be run.
    """
    request = replace(request, imgsz=round_to_stride(request.imgsz))
    if not request.epochs:
        return replace(shrink_onnx(request.onnx, progress.log), method="quantize")
    weights = read_detector(request.onnx)
    images = calibration_images(request.onnx)  # before the training, which would be in vain without them
    trained, training = train_aware(_train_config(request, weights), progress)
    with tempfile.TemporaryDirectory(prefix="oomph-shrink-") as folder:
        bench = Bench(request.data, request.imgsz, Path(folder))
        bench.add("PyTorch fp32", request.weights)
        progress.log(f"quantizing, calibrated on {len(images)} training images")
        for name, file, memory in (
            ("ONNX int8", request.weights, None),
            ("ONNX int8 QAT", trained, _memory(training)),
        ):
            quantized = Path(folder) / f"{name}.onnx"
            float_layers = _write_int8(read_weights(file), quantized, images, request.imgsz)
            bench.add(name, quantized, memory)
        write_file(quantized, request.target)
    before, calibrated, last = bench.variants
    variants = (before, replace(calibrated, file=None), replace(last, file=str(request.target)))
    return ShrinkResult("quantize", request.imgsz, bench.split, variants, tuple(bench.differences), float_layers)


def _train_config(request: QuantizeRequest, weights: Weights) -> TrainConfig:
    config = TrainConfig(
        data=request.data.absolute(),
        run_dir=request.run_dir.absolute(),
        cfg=weights.size,
        weights=request.weights.absolute(),
        imgsz=request.imgsz,
        batch=request.batch,
        epochs=request.epochs,
        device=request.device,
        budget=request.budget,
        hyp=_HYPERPARAMETERS,
        widths=weights.widths,
        single_cls=weights.classes == 1 and len(read_dataset(request.data).names) > 1,
        fake_quantize=True,
    )
    return config if request.settings is None else read_settings(request.settings, config)[0]


def _write_int8(weights: Weights, path: Path, images: NDArray[np.uint8], imgsz: int) -> tuple[str, ...]:
    """Write an int8 ONNX file; return the layers that stay in float."""
    exported = path.with_suffix(".fp32.onnx")
    export_onnx(weights, exported, imgsz)
    return quantize_onnx(exported, path, images, metadata_of(weights, imgsz, "int8"))


def _memory(training: TrainResult) -> TrainingMemory:
    settings = training.plan.settings
    batch = settings.micro_batch or settings.batch
    return TrainingMemory(training.predicted, training.measured, batch, training.plan.planned_need.target)
