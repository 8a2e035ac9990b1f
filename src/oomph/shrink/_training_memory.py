"""Predicted memory of training a variant."""

from __future__ import annotations

from dataclasses import replace

from ..detect import IndexedSplit, TrainConfig, TrainResult, Weights, predict_training
from ..machine import Target
from ._variants import TrainingMemory


def predict_memory(
    config: TrainConfig, weights: Weights, split: IndexedSplit, target: Target, measured: int | None = None
) -> TrainingMemory:
    """Predict the memory of training a network as a run would train its own, without a teacher.

    Args:
        config: the run: batch, image size and other settings.
        weights: the network.
        split: the training split.
        target: where it would run.
        measured: the peak that was measured in a run, to be kept beside the prediction.
    """
    alone = replace(config, cfg=weights.size, widths=weights.widths, teacher=None, weights=None)
    need = predict_training(alone, weights.classes, split, target)
    return TrainingMemory(int(need.allocated.value), measured, config.batch, target.name)


def memory_of_run(trained: TrainResult) -> TrainingMemory:
    """Return the memory of a run.

    Measured are torch's allocations on a GPU, if no batch was split. The CPU counts none, and the memory of the process
    contains whatever else it has done.
    """
    settings, need = trained.plan.settings, trained.plan.planned_need
    is_whole = settings.micro_batch in {None, settings.batch} and not trained.retries
    measured = trained.measured if is_whole and need.target != "cpu" else None
    return TrainingMemory(int(need.allocated.value), measured, settings.batch, need.target)
