"""Memory of a run beyond the predicted training step: the EMA and the guard's backup copy."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from ....prediction import Prediction, update_bytes
from .._config import TrainConfig
from .._optimizer import freeze


@dataclass(frozen=True)
class ExtraMemory:
    """Memory of a run beyond the predicted step, in bytes.

    Attributes:
        ema: the average of the weights, always allocated.
        backup: the guard's copy before an update, freed after it.
        backup_adds_up: True if the copy comes on top of the step's peak. In a heap it does, because its blocks have
            other sizes. On a GPU it reuses the memory of the activations, so it counts only where the update with the
            copy is the peak.
    """

    ema: int
    backup: int
    backup_adds_up: bool = False

    def added_to(self, prediction: Prediction) -> Prediction:
        """Return a prediction that includes this memory."""
        above_peak = update_bytes(prediction) + self.backup - int(prediction.allocated.value)
        extra = self.ema + (self.backup if self.backup_adds_up else max(above_peak, 0))
        return prediction.with_memory(lambda estimate: estimate.plus(extra))


def extra_memory(config: TrainConfig, classes: int, implementation: str, device: torch.device) -> ExtraMemory:
    """Return the extra memory of a run.

    The guard backs up what an update may leave half written: the trainable weights, the optimizer's state and, for SGD
    with Nesterov momentum, which writes to them, the gradients. A fused optimizer needs a backup only of the weights,
    before its first update, when it has no state. On the CPU the EMA is backed up as well.

    Args:
        config: the run.
        classes: number of classes.
        implementation: the optimizer's implementation, "fused" or "given".
        device: where it is trained.
    """
    with torch.device("meta"):
        model = config.build_network(classes)
    ema = _tensor_bytes((*model.parameters(), *model.buffers()))
    freeze(model, config.freeze)
    weights = _tensor_bytes(parameter for parameter in model.parameters() if parameter.requires_grad)
    state, gradients = (2, 0) if config.hyp.optimizer == "AdamW" else (1, 1)
    backup = weights if implementation == "fused" else (1 + state + gradients) * weights
    if device.type == "cuda":
        return ExtraMemory(ema, backup)
    return ExtraMemory(ema, ema + backup, backup_adds_up=True)


def _tensor_bytes(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
