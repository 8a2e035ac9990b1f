"""What a Trainer of Lightning must not do for its training to be guarded."""

from __future__ import annotations

from typing import Any

from ..errors import UsageError
from ._lightning_job import training_step_arguments

_STRATEGIES = ("SingleDeviceStrategy", "DDPStrategy")
_REFUSED = {
    "DeepSpeedStrategy": "DeepSpeed runs forward, backward and update as one step of its own",
    "FSDPStrategy": "ranks of FSDP1 wait for each other in a forward",
    "ModelParallelStrategy": "ranks of a sharded model wait for each other in a forward",
    "XLAStrategy": "XLA reports that memory ran out only after the step",
    "SingleDeviceXLAStrategy": "XLA reports that memory ran out only after the step",
}


def check_supported(trainer: Any, module: Any) -> None:
    """Check that the guard can repeat what a Trainer runs.

    Raises:
        UsageError: the strategy or the module can't be guarded.
    """
    names = [cls.__name__ for cls in type(trainer.strategy).__mro__]
    reason = next((_REFUSED[name] for name in names if name in _REFUSED), None)
    if reason is not None or not set(names) & set(_STRATEGIES):
        detail = f", because {reason}" if reason else ""
        raise UsageError(f"training with {names[0]} can't be guarded{detail}", 'use strategy="ddp" or a single device')
    base: Any = next(cls for cls in type(module).__mro__ if cls.__name__ == "LightningModule")
    if type(module).backward is not base.backward:
        raise UsageError(f"{type(module).__name__} overrides backward, which can't be guarded", "remove the override")
    if "dataloader_iter" in training_step_arguments(trainer, module):
        raise UsageError("training_step(dataloader_iter) can't be guarded", "use training_step(batch, batch_idx)")
