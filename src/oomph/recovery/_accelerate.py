"""What accelerate's prepared optimizers say about a step; accelerate itself is never imported."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.optim import Optimizer


class AccelerateState:
    """The optimizers that accelerate prepared, without their wrappers, and what accelerate knows of them.

    Args:
        optimizers: optimizers, prepared by accelerate or not.

    Attributes:
        optimizers: the optimizers themselves: accelerate's wrappers skip steps silently inside `accumulate`.
        scaler: accelerate's GradScaler, if it has one.
        is_mixed_precision: True if accelerate runs the model in autocast.
    """

    def __init__(self, optimizers: Sequence[Optimizer]) -> None:
        wrappers: list[Any] = [optimizer for optimizer in optimizers if _is_prepared(optimizer)]
        self.optimizers: tuple[Optimizer, ...] = tuple(
            optimizer.optimizer if _is_prepared(optimizer) else optimizer  # type: ignore[attr-defined]
            for optimizer in optimizers
        )
        self.scaler: Any = next((wrapper.scaler for wrapper in wrappers if wrapper.scaler is not None), None)
        self._gradient_state: Any = wrappers[0].gradient_state if wrappers else None
        state = getattr(wrappers[0], "accelerator_state", None) if wrappers else None
        self.is_mixed_precision = getattr(state, "mixed_precision", "no") != "no"

    @property
    def syncs_grads(self) -> bool:
        """False inside `accelerator.accumulate` for all batches but the last of an update."""
        return self._gradient_state is None or bool(self._gradient_state.sync_gradients)


def _is_prepared(optimizer: Optimizer) -> bool:
    return type(optimizer).__module__.partition(".")[0] == "accelerate" and hasattr(optimizer, "gradient_state")
