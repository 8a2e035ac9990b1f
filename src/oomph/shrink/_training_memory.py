"""Predicted memory of training a variant."""

from __future__ import annotations

from dataclasses import replace

from ..detect import IndexedSplit, TrainConfig, Weights, predict_training
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
    predicted = need.device if target.is_cpu else need.allocated
    return TrainingMemory(int(predicted.value), measured, config.batch, target.name)
