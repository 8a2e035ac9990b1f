"""`oomph shrink distill`: a detector that is trained with a teacher, measured beside it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch

from ...detect import (
    NoProgress,
    ProgressCallback,
    TrainConfig,
    TrainingData,
    Weights,
    read_data,
    read_teacher,
    read_weights,
    round_to_stride,
    train,
    with_saved_teacher,
)
from ...errors import UsageError
from ...machine import Target, find_target, this_target
from .._measure import Bench
from .._training_memory import memory_of_run, predict_memory
from .._variants import ShrinkResult, TrainingMemory


def distill_detector(config: TrainConfig, progress: ProgressCallback, *, resume: bool = False) -> ShrinkResult:
    """Train a student with its teacher, or resume the run in the config's folder, and measure both.

    Args:
        config: the run of the student, with a teacher.
        progress: progress callbacks.
        resume: continue the run in `config.run_dir`.

    Raises:
        MissingFile: a file doesn't exist.
        UsageError: data, weights or settings can't be used.
        CannotFit: nothing fits the budget.
    """
    if resume:
        config = with_saved_teacher(config)
    if config.teacher is None:
        raise UsageError(f"the run in {config.run_dir} has no teacher", "resume it with `oomph train --resume`")
    data = read_data(config, NoProgress())  # the run reads and reports it again
    # Before training, which leaves memory behind that would count on the CPU.
    teacher_memory = _predict_alone(config, data, read_teacher(config.teacher, data.dataset.names))
    initial = config.weights if config.weights is not None and config.weights.is_file() else None
    initial_memory = None if initial is None else _predict_alone(config, data, read_weights(initial))
    trained = train(config, progress, resume=resume)
    progress.log("measuring")
    with tempfile.TemporaryDirectory(prefix="oomph-shrink-") as folder:
        bench = Bench(config.data, round_to_stride(config.imgsz), Path(folder))
        bench.add("teacher", config.teacher, teacher_memory)
        if initial is not None and read_weights(initial).classes == len(data.dataset.names):
            bench.add("student before", initial, initial_memory)
        weights = Path(trained.run_dir) / "weights" / ("last.pt" if trained.saved_epoch is None else "best.pt")
        bench.add("student", weights, memory_of_run(trained))
    return ShrinkResult("distill", round_to_stride(config.imgsz), bench.split, tuple(bench.variants))


def _predict_alone(config: TrainConfig, data: TrainingData, weights: Weights) -> TrainingMemory | None:
    """Predict the training of one of the networks without the other; None if the batch is yet to be chosen."""
    if config.batch < 1:
        return None
    return predict_memory(config, weights, data.train, _target(config))


def _target(config: TrainConfig) -> Target:
    return find_target("cpu") if config.device == "cpu" or not torch.cuda.is_available() else this_target()
