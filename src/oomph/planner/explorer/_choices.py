"""What the explorer offers: GPUs, settings, and the values of its sliders."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from ...machine import Target, find_target
from ...settings import CHECKPOINTING, Settings
from ._table import TableChoice

# Well-known GPUs, of only two architectures: each further one has to be traced.
_WELL_KNOWN = ("RTX 3060", "RTX 3090", "RTX 4090", "L4", "A100 40GB", "A100 80GB", "H100 SXM5 80GB", "H200")
_AMPERE = (8, 0)
_STEP, _SMALL_STEP, _SMALL_SIZE = 32, 8, 128  # detectors and many encoders need multiples of 32
_MOST_SIZES = 7
_FEWEST_BATCHES, _MOST_BATCHES = 4, 16  # times the requested batch
_SMALLEST_LAST_BATCH = 64
_PLANNED_MODULES = "planned modules"


@dataclass(frozen=True)
class Group:
    """Targets of one architecture, whose traces are alike; the first one is traced."""

    name: str
    targets: tuple[Target, ...]


def groups_of(target: Target) -> tuple[Group, ...]:
    """Return the targets to offer by architecture, that of the plan first; beside the CPU, none."""
    if target.is_cpu:
        return (Group(target.name, (target,)),)
    groups: dict[str, list[Target]] = {_architecture(target): [target]}
    for other in map(find_target, _WELL_KNOWN):
        if other.name != target.name:
            groups.setdefault(_architecture(other), []).append(other)
    return tuple(Group(name, tuple(targets)) for name, targets in groups.items())


def _architecture(target: Target) -> str:
    return f"compute capability {target.capability[0]}.x"


def traced_precision(precision: str, target: Target) -> str:
    """Return the precision whose trace allocates the same: only kernels and speed differ."""
    if precision == "tf32":
        return "fp32"
    if precision == "amp-fp16" and target.capability >= _AMPERE:
        return "amp-bf16"
    return precision


def checkpointing_choices(settings: Settings) -> tuple[TableChoice, ...]:
    """Return what can be recomputed: nothing, the repeated blocks, and the modules of the plan if it names some."""
    choices = tuple(TableChoice(name, name) for name in CHECKPOINTING)
    planned = settings.checkpointing
    return choices if isinstance(planned, str) else (*choices, TableChoice(planned, _PLANNED_MODULES))


def updated_as(precision: str) -> str:
    """Return the precision whose update is the same: weights and states are fp32 unless everything is bf16."""
    return "fp32" if precision in {"tf32", "amp-bf16"} else precision


def size_ends(requested: int) -> tuple[int, int]:
    """Return the smallest and the largest size to offer: about a half and twice the requested one."""
    step = _size_step(requested)
    return max(requested // 2 // step * step, step), 2 * requested


def size_values(first: int, last: int, requested: int) -> tuple[int, ...]:
    """Return sizes between both ends, the requested one among them."""
    step = _size_step(requested)
    steps = (last - first) // step
    apart = max(math.ceil(steps / (_MOST_SIZES - 1)), 1) * step
    return tuple(sorted({*range(first, last, apart), requested, last}))


def _size_step(size: int) -> int:
    return math.gcd(size, _STEP if size >= _SMALL_SIZE else _SMALL_STEP)


def last_batch(requested: int, fitting: int) -> int:
    """Return the largest batch to offer: up to what fits on the largest GPU, within bounds."""
    most = max(_MOST_BATCHES * requested, _SMALLEST_LAST_BATCH)
    return min(max(_FEWEST_BATCHES * requested, fitting), most)


def sample_values(first: int, last: int, planned: Iterable[int]) -> tuple[int, ...]:
    """Return numbers of samples: powers of two, what is halfway between them, and the planned ones."""
    powers = (2**exponent for exponent in range(last.bit_length()))
    values = {value for power in powers for value in (power, 3 * power // 2)}
    return tuple(sorted(value for value in {*values, *planned, last} if first <= value <= last))
