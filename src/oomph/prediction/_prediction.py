"""The Prediction: memory and time of a training step, each with a range and an origin."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, replace

from ..display import HtmlRepr


class Origin(enum.Enum):
    """The source of an estimate."""

    TRACED = "traced"
    MEASURED = "measured"
    ASSUMED = "assumed"


@dataclass(frozen=True)
class Estimate:
    """A value with the range that it is unlikely to leave, in bytes or seconds."""

    low: float
    value: float
    high: float
    origin: Origin

    def plus(self, size: float) -> Estimate:
        """Return the estimate with `size` added to its value and both bounds."""
        return Estimate(self.low + size, self.value + size, self.high + size, self.origin)


@dataclass(frozen=True)
class Owner:
    """Memory at the peak that belongs to one module and is of one kind.

    Attributes:
        module: path of the module, or of its parameter; empty outside the model.
        kind: kind of memory.
        size: bytes.
        module_class: class of the module; empty outside the model.
    """

    module: str
    kind: str
    size: int
    module_class: str = ""


@dataclass(frozen=True)
class Peak:
    """The moment with the most allocated memory.

    Attributes:
        phase: the phase of training.
        step: the training step, starting at 0.
        op: the operation that made the last allocation.
        module: the module of that operation.
        kinds: bytes by kind of memory, largest first.
        owners: bytes by module and kind, largest first.
    """

    phase: str
    step: int
    op: str
    module: str
    kinds: tuple[tuple[str, int], ...]
    owners: tuple[Owner, ...]


@dataclass(frozen=True)
class Prediction(HtmlRepr):
    """Predicted memory and time of a training step, in bytes and seconds.

    On the CPU, `allocated`, `reserved`, `needed` and `full_speed` are equal: the growth of RSS after the imports.
    `device` and `host` are the RSS of the whole process.

    Attributes:
        target: the name of the GPU, or "cpu".
        allocated: `torch.cuda.max_memory_allocated()`.
        reserved: `torch.cuda.max_memory_reserved()` without a memory cap.
        needed: the smallest allocator cap under which the step runs at all.
        full_speed: an allocator cap at which the step runs at full speed: the allocator never has to free cached
            memory, and cuDNN's fastest algorithms get their workspace.
        device: `full_speed` plus the memory outside the allocator, as nvidia-smi shows it.
        host: RSS of the process.
        seconds: time of one step.
        peak: the composition of the peak.
        phases: the maximum of allocated bytes in each phase of the first step and of a later one, in validation, with a
            moving average of the weights, and while a checkpoint is saved.
        assumptions: what the prediction assumed, one sentence each.
    """

    target: str
    allocated: Estimate
    reserved: Estimate
    needed: Estimate
    full_speed: Estimate
    device: Estimate
    host: Estimate
    seconds: Estimate
    peak: Peak
    phases: tuple[tuple[str, int], ...]
    assumptions: tuple[str, ...]

    def with_memory(self, change: Callable[[Estimate], Estimate]) -> Prediction:
        """Return a copy with `change` applied to every estimate of device memory."""
        return replace(
            self,
            allocated=change(self.allocated),
            reserved=change(self.reserved),
            needed=change(self.needed),
            full_speed=change(self.full_speed),
            device=change(self.device),
        )


def update_bytes(prediction: Prediction) -> int:
    """Return the memory in use during the optimizer's update: weights, gradients and states."""
    return int(dict(prediction.phases)["steady step, optimizer"])
