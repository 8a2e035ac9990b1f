"""Results that every method of `oomph shrink` reports. No torch."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Latency:
    """Seconds that the network takes for one image, without decoding and NMS.

    Attributes:
        median: half of the runs are faster.
        lower, upper: the quartiles.
        runs: number of timed runs, after the warm-up.
        threads: number of threads of the network.
    """

    median: float
    lower: float
    upper: float
    runs: int
    threads: int

    @staticmethod
    def of(seconds: Sequence[float], threads: int) -> Latency:
        """Summarize at least two runs."""
        lower, median, upper = statistics.quantiles(seconds, n=4, method="inclusive")
        return Latency(median, lower, upper, len(seconds), threads)


@dataclass(frozen=True)
class TrainingMemory:
    """Peak memory of training a variant.

    Attributes:
        predicted: peak of torch's allocations in bytes.
        measured: the same as measured in a training run on a GPU; None if there was none, or it split batches.
        batch: images per step.
        target: the device.
    """

    predicted: int
    measured: int | None
    batch: int
    target: str


@dataclass(frozen=True)
class VariantReport:
    """A variant of a model, as measured.

    Attributes:
        name: runtime and precision: "PyTorch fp32", "ONNX int8".
        file: its path; None if the file was only needed on the way to another.
        file_bytes: size of the file.
        parameters: number of weights and biases.
        memory: peak RSS in bytes of a process that loads the file and runs the network on images one by one, with
            everything that process needs: Python, the runtime and the images.
        latency: time per image on the CPU.
        scores: metrics by name, such as "mAP50", from 0 to 1, the higher the better.
        training: memory of training it; None for a file that can't be trained.
    """

    name: str
    file: str | None
    file_bytes: int
    parameters: int
    memory: int
    latency: Latency
    scores: dict[str, float]
    training: TrainingMemory | None = None


@dataclass(frozen=True)
class OutputDifference:
    """Differences of a variant's raw outputs from those of the original model on real images.

    Attributes:
        variant: name of the variant.
        largest, mean: of the absolute differences.
        images: number of images.
    """

    variant: str
    largest: float
    mean: float
    images: int


@dataclass(frozen=True)
class ShrinkResult:
    """The result of a method.

    Attributes:
        method: name of the method.
        imgsz: image size of all measurements.
        split: the split that scores are measured on.
        variants: before, and what the method made of it.
        differences: of the raw outputs, for each variant but the first.
        float_layers: layers that were left in float by quantization.
    """

    method: str
    imgsz: int
    split: str
    variants: tuple[VariantReport, ...]
    differences: tuple[OutputDifference, ...] = ()
    float_layers: tuple[str, ...] = ()
