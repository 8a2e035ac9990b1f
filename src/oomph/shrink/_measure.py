"""Measure a variant of a detector: its file in a process of its own, its mAP in this one."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..detect import ExportMetadata, InferenceConfig, is_exported, open_exported, read_weights, validate_weights
from ..errors import OomphError, shorten
from ._images import sample_images
from ._measure_task import MeasureTask
from ._variants import Latency, OutputDifference, TrainingMemory, VariantReport

_IMAGES = 16


class Bench:
    """Measures variants of a detector on the same images, the original first.

    Args:
        data: the data.yaml.
        imgsz: image size.
        folder: an empty folder for its files.
        split: the split that images and mAP are from.

    Attributes:
        variants: what was measured.
        differences: of the outputs of each variant but the first.
    """

    def __init__(self, data: Path, imgsz: int, folder: Path, split: str = "val") -> None:
        self._data, self._imgsz, self._folder, self.split = data, imgsz, folder, split
        self._images = folder / "images.npy"
        np.save(self._images, sample_images(data, split, imgsz, _IMAGES))
        self.variants: list[VariantReport] = []
        self.differences: list[OutputDifference] = []

    def add(self, name: str, file: Path, training: TrainingMemory | None = None) -> None:
        """Measure a variant, and compare its outputs with those of the first.

        Args:
            name: name in the table.
            file: weights or an exported file.
            training: memory of training it.

        Raises:
            OomphError: the file can't be run.
        """
        task = MeasureTask(str(file), str(self._images), str(self._outputs(len(self.variants))))
        variant = measure_variant(name, task, self._data, self._imgsz, self.split)
        self.variants.append(replace(variant, training=training))
        if len(self.variants) > 1:
            self.differences.append(compare_outputs(name, self._outputs(0), Path(task.outputs)))

    def _outputs(self, number: int) -> Path:
        return self._folder / f"outputs{number}.npy"


def measure_variant(name: str, task: MeasureTask, data: Path, imgsz: int, split: str = "val") -> VariantReport:
    """Measure a file of weights or an exported file.

    Args:
        name: name in the table.
        task: the file, and what the measuring process does with it.
        data: the data.yaml.
        imgsz: image size.
        split: the split that mAP is measured on.

    Raises:
        OomphError: the file can't be run.
    """
    file = Path(task.file)
    seconds, memory = run_process(task)
    scores = validate_weights(InferenceConfig(file, imgsz, "cpu"), data, split)
    return VariantReport(
        name=name,
        file=str(file),
        file_bytes=file.stat().st_size,
        parameters=_parameters(file),
        memory=memory,
        latency=Latency.of(seconds, task.threads),
        scores={"mAP50": scores.map50, "mAP50-95": scores.map50_95},
    )


def run_process(task: MeasureTask) -> tuple[list[float], int]:
    """Run the measuring process; return the seconds of each run and its peak RSS in bytes.

    Raises:
        OomphError: the process fails.
    """
    command = [sys.executable, "-m", "oomph.shrink._measure_process", json.dumps(asdict(task))]
    process = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  this interpreter
    if process.returncode:
        lines = process.stderr.strip().splitlines() or [f"exit code {process.returncode}"]
        raise OomphError(f"{task.file} can't be run ({shorten(lines[-1], 200)})", "export it again, and report this")
    result = json.loads(process.stdout)
    return result["seconds"], result["memory"]


def compare_outputs(variant: str, before: Path, after: Path) -> OutputDifference:
    """Compare the outputs that two measuring processes wrote."""
    expected: NDArray[np.float32] = np.load(before)
    difference = np.abs(np.load(after) - expected)
    return OutputDifference(variant, float(difference.max()), float(difference.mean()), len(expected))


def _parameters(file: Path) -> int:
    if is_exported(file):
        return ExportMetadata.decode(open_exported(file).entries, file).parameters
    return sum(parameter.numel() for parameter in read_weights(file).build().parameters())
