"""`oomph shrink quantize --epochs N`: quantization-aware training of a detector, and its int8 ONNX file."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...detect import (
    ProgressCallback,
    TrainConfig,
    TrainResult,
    Weights,
    load_config,
    read_dataset,
    read_weights,
    round_to_stride,
    train,
)
from ...errors import MissingFile
from .._measure import Bench
from .._training_memory import memory_of_run
from .._variants import ShrinkResult
from ..export import ONNX, Quantization, calibration_images, read_detector, write_file
from ._request import QUANTIZE_FILE, QuantizeRequest


def quantize_detector(request: QuantizeRequest, progress: ProgressCallback) -> ShrinkResult:
    """Train a detector with fake quantization, or go on with its training, and write and measure its int8 file.

    The file is written only after it ran. An existing file of that name is replaced.

    Raises:
        MissingFile: a file doesn't exist.
        UsageError: the weights aren't a detector of the data's classes, there is nothing to calibrate with, a file
            can't be written, or a package is missing.
        CannotFit: the training doesn't fit the budget.
        OomphError: the file can't be run.
    """
    onnx = replace(request.onnx, imgsz=round_to_stride(request.config.imgsz))
    weights = read_detector(ONNX, onnx)
    images = calibration_images(onnx)  # before the training, which would be in vain without them
    QUANTIZE_FILE.save(replace(request, out=ONNX.target(request.onnx).absolute()))
    trained = _train(_training_config(request.config, weights), progress)
    with tempfile.TemporaryDirectory(prefix="oomph-shrink-") as folder:
        bench = Bench(onnx.data, onnx.imgsz, Path(folder))
        bench.add("PyTorch fp32", onnx.weights)
        progress.log(f"quantizing, calibrated on {len(images)} training images")
        before, after = (_Files(Path(folder), name) for name in ("calibrated", "trained"))
        before.write(weights, images, onnx.imgsz)
        bench.add("ONNX fp32", before.fp32)
        bench.add("ONNX int8", before.int8)
        float_layers = after.write(read_weights(_best_weights(trained)), images, onnx.imgsz)
        bench.add("ONNX int8 QAT", after.int8, memory_of_run(trained))
        write_file(after.int8, ONNX.target(onnx))
    first, *middle, last = bench.variants
    variants = (first, *(replace(item, file=None) for item in middle), replace(last, file=str(ONNX.target(onnx))))
    # Outputs of other weights are not compared.
    return ShrinkResult("quantize", onnx.imgsz, bench.split, variants, tuple(bench.differences[:-1]), float_layers)


def _training_config(config: TrainConfig, weights: Weights) -> TrainConfig:
    is_single = weights.classes == 1 and len(read_dataset(config.data).names) > 1
    return replace(config, cfg=weights.size, widths=weights.widths, single_cls=is_single, fake_quantize=True)


def _train(config: TrainConfig, progress: ProgressCallback) -> TrainResult:
    try:
        saved = load_config(config.run_dir)
    except MissingFile:  # not begun, or stopped before its first checkpoint
        return train(config, progress)
    return train(saved.resolved, progress, resume=True)


def _best_weights(trained: TrainResult) -> Path:
    name = "last" if trained.saved_epoch is None else "best"
    return Path(trained.run_dir) / "weights" / f"{name}.pt"


@dataclass(frozen=True)
class _Files:
    """ONNX files of a detector: an fp32 file and the int8 file that is made from it."""

    folder: Path
    name: str

    @property
    def fp32(self) -> Path:
        return self.folder / f"{self.name}.fp32.onnx"

    @property
    def int8(self) -> Path:
        return self.folder / f"{self.name}.int8.onnx"

    def write(self, weights: Weights, images: NDArray[np.uint8], imgsz: int) -> tuple[str, ...]:
        """Write both files; return the layers that stay in float."""
        ONNX.export(weights, self.fp32, imgsz)
        return ONNX.quantize(Quantization(weights, self.fp32, self.int8, images, imgsz))
