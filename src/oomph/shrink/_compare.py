"""`oomph shrink compare`: variants of a detector in files, measured one by one and compared."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..detect import (
    TrainConfig,
    Yolov5,
    index_split,
    load_detector,
    read_dataset,
    read_split,
    read_weights,
    round_to_stride,
)
from ..errors import UsageError
from ..machine import find_target, this_target
from ._measure import Bench
from ._recommendation import Recommendation, VariantLimits, find_variant_front, recommend_variant
from ._training_memory import predict_memory
from ._variants import TrainingMemory, VariantReport

_MIN_FILES = 2
_Log = Callable[[str], object]


@dataclass(frozen=True)
class CompareRequest:
    """Request of a comparison.

    Attributes:
        files: weights or exported files of detectors with the same classes; the others are compared with the first.
        data: the data.yaml: mAP is measured on its val split, training memory is predicted for its train split.
        imgsz: image size of all measurements and predictions.
        batch: images per step of the predicted training.
        gpu: GPU or cloud machine that training memory is predicted for, or "cpu"; this machine's if None.
        limits: limits of the recommended variant.
    """

    files: tuple[Path, ...]
    data: Path
    imgsz: int = 640
    batch: int = 16
    gpu: str | None = None
    limits: VariantLimits = field(default_factory=VariantLimits)


@dataclass(frozen=True)
class CompareResult:
    """Variants of a detector, as measured.

    Attributes:
        imgsz: image size of all measurements.
        split: the split that scores are measured on.
        variants: the variants, in the order of the files.
        front: names of those that no other one beats.
        recommendation: the variant to use.
        method: name of the method.
    """

    imgsz: int
    split: str
    variants: tuple[VariantReport, ...]
    front: tuple[str, ...]
    recommendation: Recommendation
    method: str = "compare"


def compare_variants(request: CompareRequest, log: _Log = lambda _: None) -> CompareResult:
    """Measure files of detectors one after the other, each in a process of its own, and recommend one.

    Raises:
        MissingFile: a file doesn't exist.
        UsageError: a file isn't a detector of this data, the detectors have different classes, or files are missing.
        OomphError: a file can't be run.
    """
    trainable = _check_files(request)
    # Before anything runs: a prediction for the CPU includes the memory that this process uses already.
    memories = _predict_memories(request, trainable, log)
    imgsz, names = round_to_stride(request.imgsz), name_files(request.files)
    with tempfile.TemporaryDirectory(prefix="oomph-shrink-") as folder:
        bench = Bench(request.data, imgsz, Path(folder))
        for number, (name, file) in enumerate(zip(names, request.files, strict=True), 1):
            log(f"measuring {name} ({number} of {len(names)})")
            bench.add(name, file, memories.get(file))
    variants = tuple(bench.variants)
    front = tuple(variant.name for variant in find_variant_front(variants))
    return CompareResult(imgsz, bench.split, variants, front, recommend_variant(variants, request.limits))


def name_files(files: Sequence[Path]) -> tuple[str, ...]:
    """Return the name of each file, with as many of its folders as distinguish it from the others."""
    return tuple(_name_file(file, files) for file in files)


def _name_file(file: Path, files: Sequence[Path]) -> str:
    for length in range(1, len(file.parts)):
        tail = file.parts[-length:]
        if sum(other.parts[-length:] == tail for other in files) == 1:
            return str(Path(*tail))
    return str(file)


def _check_files(request: CompareRequest) -> list[Path]:
    """Check everything that can be wrong before the first measurement; return the files that can be trained."""
    files = request.files
    if len(files) < _MIN_FILES:
        raise UsageError(f"there is nothing to compare with {files[0] if files else 'no file'}", "pass several files")
    _check_repeated(files)
    names = read_dataset(request.data).names
    trainable, first = [], 0
    for file in files:
        detector = load_detector(file, "cpu", round_to_stride(request.imgsz))
        first = first or detector.classes
        if detector.classes != first:
            raise UsageError(
                f"{file} has {detector.classes} classes and {files[0]} has {first}",
                "compare detectors of the same classes",
            )
        if isinstance(detector.model, Yolov5):
            trainable.append(file)
    if first not in {1, len(names)}:
        raise UsageError(
            f"the detectors have {first} classes and {request.data} has {len(names)}",
            "use the data that they were trained on",
        )
    return trainable


def _check_repeated(files: Sequence[Path]) -> None:
    paths: dict[Path, Path] = {}
    for file in files:
        if (same := paths.setdefault(file.resolve(), file)) is not file:
            also = "twice" if file == same else f"also as {same}"
            raise UsageError(f"{file} is passed {also}", "pass each file once")


def _predict_memories(request: CompareRequest, files: Sequence[Path], log: _Log) -> dict[Path, TrainingMemory]:
    """Predict the memory of training each file; empty if the data has nothing to train on."""
    target = this_target() if request.gpu is None else find_target(request.gpu)
    config = TrainConfig(request.data, Path(), imgsz=round_to_stride(request.imgsz), batch=request.batch)
    if not files:
        return {}
    try:
        split = index_split(read_split(read_dataset(request.data), "train"))
    except UsageError as error:
        log(f"training memory can't be predicted: {error.why}")
        return {}
    return {file: predict_memory(config, read_weights(file), split, target) for file in files}
