"""The table behind the explorer: predictions for every position of its controls.

The page's script (`report/explorer/explorer.js`) looks them up in the same way.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ...prediction import Estimate, Origin, overlapped_seconds
from ...settings import Settings
from ...trace import StorageKind

PEAK_KINDS = tuple(kind.value for kind in StorageKind)
_TIME_RANGE = 2.0


@dataclass(frozen=True)
class Need:
    """Predicted memory of torch's allocator, in bytes.

    Attributes:
        reserved: the value of `Prediction.full_speed`.
        allocated: the value of `Prediction.allocated`.
        kinds: the composition of the peak, in the order of PEAK_KINDS.
    """

    reserved: int
    allocated: int
    kinds: tuple[int, ...]


NeedGrid = tuple[tuple[Need, ...], ...]  # by size and samples


@dataclass(frozen=True)
class Steps:
    """Steps in one precision, with one checkpointing and one update, on GPUs of one group.

    Attributes:
        alone: the needs of a batch in one piece, by size and samples.
        accumulating: the needs of each of several micro-batches, likewise.
        low: factor of `reserved` for the lower end of its range.
        high: factor of `reserved` for the upper end of its range.
        launching: seconds that the CPU takes to launch one micro-batch.
        launching_sums: seconds that it takes to launch the sums of gradients of each further micro-batch.
    """

    alone: NeedGrid
    accumulating: NeedGrid
    low: float
    high: float
    launching: float
    launching_sums: float


@dataclass(frozen=True)
class Device:
    """A GPU to choose, or the CPU.

    Attributes:
        name: its name.
        group: GPUs of one group share their predictions of memory.
        memory: bytes that may be used.
        outside: bytes outside torch's allocator: low, value, high.
    """

    name: str
    group: str
    memory: int
    outside: tuple[float, float, float]


@dataclass(frozen=True)
class TableChoice:
    """A setting to choose.

    Attributes:
        value: the setting; paths of modules for a planned set of checkpointed ones.
        name: its name in the table and on the page.
        problem: why it can't be chosen; empty if it can.
    """

    value: str | tuple[str, ...]
    name: str
    problem: str = ""


@dataclass(frozen=True)
class Axis:
    """The values of a slider in ascending order, and why there is only one, if so."""

    values: tuple[int, ...]
    problem: str = ""


@dataclass(frozen=True)
class TablePosition:
    """A position of the explorer's controls."""

    device: str
    batch: int
    micro_batch: int
    size: int
    precision: str
    checkpointing: str
    optimizer: str


@dataclass(frozen=True)
class TableEstimate:
    """What the table says about a position.

    Attributes:
        memory: bytes of the device, as `Prediction.device`.
        need: the part of torch's allocator, and its composition.
        seconds: seconds of a step over the whole batch.
        fits: True if the upper end of memory's range is at most the device's memory.
    """

    memory: Estimate
    need: Need
    seconds: Estimate
    fits: bool


@dataclass(frozen=True)
class PredictionTable:
    """Predictions of one Job for many settings.

    Attributes:
        settings: what all positions share: memory format, allocator, loss in chunks, offloading.
        devices: what it can run on.
        precisions: what it can compute in.
        checkpointings: what can be recomputed.
        optimizers: implementations of the update.
        samples: values of the batch, and of micro-batches.
        sizes: values of the size.
        steps: by "group|precision|checkpointing|optimizer".
        seconds: seconds of one micro-batch on the device by size and samples, by "device|precision|checkpointing".
        sum_seconds: seconds of the sums of gradients of each further micro-batch on the device, likewise.
        update_seconds: seconds of the update on the device, by "device|precision|optimizer".
        update_launching: seconds that the CPU takes to launch the update, by "precision|optimizer".
        overlaps: True if the device works while the next operations are launched; False on the CPU.
        is_derived: False if memory between traced points is interpolated, because different steps run there.
        assumptions: what the predictions assumed, one sentence each.
        time_range: factor between a time and the ends of its range.
    """

    settings: Settings
    devices: tuple[Device, ...]
    precisions: tuple[TableChoice, ...]
    checkpointings: tuple[TableChoice, ...]
    optimizers: tuple[TableChoice, ...]
    samples: Axis
    sizes: Axis
    steps: Mapping[str, Steps]
    seconds: Mapping[str, tuple[tuple[float, ...], ...]]
    sum_seconds: Mapping[str, float]
    update_seconds: Mapping[str, float]
    update_launching: Mapping[str, float]
    overlaps: bool
    is_derived: bool
    assumptions: tuple[str, ...]
    time_range: float = _TIME_RANGE

    def position(self, settings: Settings, device: str) -> TablePosition:
        """Return the position of settings that are among those of the table."""
        return TablePosition(
            device=device,
            batch=settings.batch,
            micro_batch=settings.micro_batch or settings.batch,
            size=settings.size if isinstance(settings.size, int) else self.sizes.values[0],
            precision=settings.precision,
            checkpointing=next(c.name for c in self.checkpointings if c.value == settings.checkpointing),
            optimizer=settings.optimizer,
        )

    def settings_at(self, position: TablePosition) -> Settings:
        """Return the settings at a position."""
        return replace(
            self.settings,
            batch=position.batch,
            micro_batch=position.micro_batch if position.micro_batch < position.batch else None,
            size=self.settings.size if self.sizes.problem else position.size,
            precision=position.precision,
            checkpointing=next(c.value for c in self.checkpointings if c.name == position.checkpointing),
            optimizer=position.optimizer,
        )

    def micro_batches(self, batch: int) -> tuple[int, ...]:
        """Return the micro-batches to offer for a batch: all of it, or pieces of which at least two are alike."""
        return tuple(value for value in self.samples.values if 2 * value <= batch + 1 or value == batch)

    def lookup(self, position: TablePosition) -> TableEstimate:
        """Return the estimate at a position."""
        device = next(device for device in self.devices if device.name == position.device)
        key = f"{device.group}|{position.precision}|{position.checkpointing}|{position.optimizer}"
        steps = self.steps[key]
        need = self._need(steps, position)
        low, value, high = device.outside
        memory = Estimate(
            need.reserved * steps.low + low, need.reserved + value, need.reserved * steps.high + high, Origin.TRACED
        )
        seconds = self._seconds(position, steps)
        return TableEstimate(
            memory=memory,
            need=need,
            seconds=Estimate(seconds / self.time_range, seconds, seconds * self.time_range, Origin.ASSUMED),
            fits=memory.high <= device.memory,
        )

    def _need(self, steps: Steps, position: TablePosition) -> Need:
        row = self.sizes.values.index(position.size)
        rest = position.batch - position.micro_batch
        alone = steps.alone[row][self._column(position.micro_batch)]
        if not rest:
            return alone
        if rest >= position.micro_batch:
            return steps.accumulating[row][self._column(position.micro_batch)]
        # The second micro-batch is smaller, but the gradients of the first are there.
        return _larger(alone, steps.accumulating[row][self._column(rest)])

    def _column(self, samples: int) -> int:
        """Return the position of a number of samples, or of the next larger one."""
        return bisect.bisect_left(self.samples.values, samples)

    def _seconds(self, position: TablePosition, steps: Steps) -> float:
        key = f"{position.device}|{position.precision}|{position.checkpointing}"
        by_samples = self.seconds[key][self.sizes.values.index(position.size)]
        full, rest = divmod(position.batch, position.micro_batch)
        count = full + bool(rest)
        running = full * by_samples[self._column(position.micro_batch)] + (count - 1) * self.sum_seconds[key]
        running += _on_line(self.samples.values, by_samples, rest) if rest else 0
        running += self.update_seconds[f"{position.device}|{position.precision}|{position.optimizer}"]
        launching = count * steps.launching + (count - 1) * steps.launching_sums
        launching += self.update_launching[f"{position.precision}|{position.optimizer}"]
        return overlapped_seconds(running, launching) if self.overlaps else running


def _larger(first: Need, second: Need) -> Need:
    return second if second.reserved > first.reserved else first


def _on_line(knots: Sequence[int], numbers: Sequence[float], value: int) -> float:
    """Return the number on the line through the two knots around a value, or through the nearest two."""
    if len(knots) == 1:
        return numbers[0]
    right = min(max(bisect.bisect_left(knots, value), 1), len(knots) - 1)
    share = (value - knots[right - 1]) / (knots[right] - knots[right - 1])
    return numbers[right - 1] + share * (numbers[right] - numbers[right - 1])
