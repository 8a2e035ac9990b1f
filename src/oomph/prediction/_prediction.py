"""What a training step will need: figures with a range and an origin."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, replace


class Origin(enum.Enum):
    """Where a figure comes from."""

    TRACED = "traced"
    MEASURED = "measured"
    ASSUMED = "assumed"


@dataclass(frozen=True)
class Estimate:
    """A figure between two others that it is unlikely to leave."""

    low: float
    value: float
    high: float
    origin: Origin

    def plus(self, size: float) -> Estimate:
        """The same with so much more."""
        return Estimate(self.low + size, self.value + size, self.high + size, self.origin)


@dataclass(frozen=True)
class Owner:
    """Who holds memory at the peak: a module and what the memory is for."""

    module: str
    kind: str
    size: int


@dataclass(frozen=True)
class Peak:
    """The moment at which most memory is allocated.

    Attributes:
        phase: the phase it falls into.
        step: the training step, 0 being the first.
        op: the operation that asked for the last of it.
        module: the module of that operation.
        kinds: bytes by what they are for, largest first.
        owners: bytes by module and kind, largest first.
    """

    phase: str
    step: int
    op: str
    module: str
    kinds: tuple[tuple[str, int], ...]
    owners: tuple[Owner, ...]


@dataclass(frozen=True)
class Prediction:
    """What a training step will need, in bytes and seconds.

    Attributes:
        target: the GPU it was made for, or "cpu". There the first four figures are one: how much resident memory grows
            over what the imports take; `device` and `host` are the whole process.
        allocated: what `torch.cuda.max_memory_allocated` will say.
        reserved: what `torch.cuda.max_memory_reserved` will say, without a cap.
        needed: the smallest allocator cap under which it runs at all.
        comfortable: a cap at which it runs at full speed: the allocator never has to look for memory, and cuDNN has
            room for its fastest plans.
        device: comfortable, and what lives outside of the allocator: as nvidia-smi shows it.
        host: resident memory of the process on the host.
        seconds: time of one step.
        peak: what the peak is made of.
        phases: the most that is allocated in each phase of the first and of a later step, in validation, with a moving
            average of the weights, and while a checkpoint is saved.
        assumptions: what was taken for granted, in words.
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
        """The same with every figure of the device's memory changed alike."""
        return replace(
            self,
            allocated=change(self.allocated),
            reserved=change(self.reserved),
            needed=change(self.needed),
            full_speed=change(self.full_speed),
            device=change(self.device),
        )
