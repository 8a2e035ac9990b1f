"""How much memory a step takes and how much there is, without making the device wait."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Iterator
from typing import Any

import psutil
import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from ..machine import OUTSIDE, HostMemoryReader
from ..units import MIB, format_size
from ._spill import cap_below_spill

_MARGIN = 0.95  # of the limit that a prediction may fill
_EVERY = 0.002  # seconds between two looks at the process's memory, which take microseconds
_ASK_EVERY = 0.5  # seconds between two looks at the machine's, unless the process has taken a quarter of the room
_ASK_DEVICE_EVERY = 0.1  # seconds between two looks at the allocator's two hundred numbers
_LEAST = 64 * MIB  # that must stay free on the host
_AMPLE = 8  # times what any step has taken so far: with that much room, modules needn't be watched
_LEARNING = 3  # steps until that is known
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


class DeviceMeter:
    """The allocator of a CUDA device. Its peak is reset only in steps that decide whether pieces may be larger."""

    def __init__(self, device: torch.device) -> None:
        # torch's memory functions want the number of the device.
        self.device = device if ":" in str(device) else torch.device("cuda", torch.cuda.current_device())
        self._base, self._asked = 0, -_ASK_DEVICE_EVERY
        self.peak: int | None = None

    def begin(self, model: nn.Module, *, closely: bool) -> None:
        """A step begins; closely: its own peak is asked for."""
        del model
        if closely:
            torch.cuda.reset_peak_memory_stats(self.device)
            self._base = self._allocated("current")

    def look(self) -> None:
        """A forward has ended: the allocator remembers its peak by itself."""

    def end(self, *, closely: bool) -> None:
        """The step has ended."""
        now = time.monotonic()
        if closely or now >= self._asked + _ASK_DEVICE_EVERY:
            self._asked, self.peak = now, self._allocated("peak")

    def _allocated(self, what: str) -> int:
        # As torch.cuda.memory_allocated, which sorts two hundred other numbers each time.
        statistics: Any = torch.cuda.memory_stats_as_nested_dict(self.device)
        return int(statistics["allocated_bytes"]["all"][what]) if statistics else 0

    def fits(self, factor: float) -> bool:
        """Whether pieces larger by a factor would fit."""
        if self.peak is None or self.peak <= self._base:
            return True
        return self._base + factor * (self.peak - self._base) <= _MARGIN * self.limit()

    def limit(self) -> int:
        """How much the allocator may take in all."""
        free, total = torch.cuda.mem_get_info(self.device)
        return min(free + torch.cuda.memory_reserved(self.device), int(_fraction(self.device) * total))


def _fraction(device: torch.device) -> float:
    ask: Any = getattr(torch.cuda, "get_per_process_memory_fraction", None)
    return 1.0 if ask is None else float(ask(device))


class HostShort(MemoryError):
    """The host's memory is nearly used up: raised by the guard, before the kernel kills the process."""


class HostMeter:
    """The RAM of this process, looked at before each module runs, because nobody raises when RAM runs out.

    A compiled model is one module. With room for many times what steps take, a look after each forward is enough.

    Args:
        budget: bytes that this process may take; what the machine and its control groups leave if None.
    """

    def __init__(self, budget: int | None) -> None:
        self._budget = budget
        self._gauge = None if budget is not None else HostMemoryReader()
        self._looked, self._seen, self._growth, self._base = 0.0, 0, 0, 0
        self._near = True  # few modules like the largest one so far would fit
        self._steps, self._most = 0, 0  # that were seen, and what one of them took
        self._asked, self._then, self._last = -_ASK_EVERY, 0, 0  # when the machine was asked, at what use, its answer
        self.peak: int | None = None
        self._handles: list[RemovableHandle] = []

    def begin(self, model: nn.Module, *, closely: bool) -> None:
        """A step begins."""
        del closely  # a look costs the same either way
        self._base = self._seen = self.peak = resident()
        self._looked, self._growth, self._near = 0.0, 0, True
        if self._steps < _LEARNING or self._room(self._base) < _AMPLE * (self._most + _LEAST):
            # Only while a step runs: a model that keeps hooks could not be copied or saved.
            self._handles = [module.register_forward_pre_hook(self._before) for module in uncompiled(model)]

    def end(self, *, closely: bool) -> None:
        """The step has ended."""
        del closely
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self._note(resident())
        self._steps, self._most = self._steps + 1, max(self._most, (self.peak or 0) - self._base)

    def _before(self, module: nn.Module, inputs: Any) -> None:
        del module, inputs
        if not torch.compiler.is_compiling():  # of a compiled function nothing of this may become part
            self.look()

    def fits(self, factor: float) -> bool:
        """Whether pieces larger by a factor would fit."""
        if self.peak is None:
            return True
        return factor * (self.peak - self._base) <= _MARGIN * self._room(resident())

    def limit(self) -> int:
        """How much this process may take in all."""
        used = resident()
        return used + self._room(used)

    def look(self) -> None:
        """A module begins, or a forward has ended.

        Raises:
            HostShort: another module like the largest one so far would not fit.
        """
        now = time.monotonic()
        if now < self._looked + _EVERY and not self._near:
            return
        self._looked = now
        used = resident()
        self._note(used)
        room = self._room(used)
        self._near = room < _AMPLE * (self._growth + _LEAST)
        # What one module took, the next one may take too, before anybody looks again.
        if room < _LEAST + self._growth:
            raise HostShort(f"the host has {format_size(max(room, 0))} left")

    def _note(self, used: int) -> None:
        self._growth = max(self._growth, used - self._seen)
        self._seen = used
        self.peak = used if self.peak is None else max(self.peak, used)

    def _room(self, used: int) -> int:
        if self._gauge is None:
            assert self._budget is not None  # noqa: S101  one of the two is there
            return self._budget - used
        now = time.monotonic()
        if now < self._asked + _ASK_EVERY and used - self._then < self._last / 4:
            return self._last - (used - self._then)
        self._asked, self._then, self._last = now, used, self._ask(self._gauge)
        return self._last

    @staticmethod
    def _ask(gauge: HostMemoryReader) -> int:
        reading = gauge.read()
        bounds = [reading.ram_available]
        if reading.cgroup_limit is not None and reading.cgroup_used is not None:
            bounds.append(reading.cgroup_limit - reading.cgroup_used)
        return min((one for one in bounds if one is not None), default=1 << 62)


def uncompiled(module: nn.Module) -> Iterator[nn.Module]:
    """The modules that are run one by one. A hook inside of a compiled one would end its compilation for good."""
    if isinstance(module, torch.jit.ScriptModule):
        return  # has no hooks
    if getattr(module, "_compiled_call_impl", None) is None and not hasattr(module, "_orig_mod"):
        yield module
        for child in module.children():
            yield from uncompiled(child)


def resident() -> int:
    """The RAM of this process."""
    file = _statm(os.getpid())
    if file is None:
        return int(psutil.Process().memory_info().rss)
    return int(os.pread(file, 200, 0).split()[1]) * _PAGE


@functools.lru_cache(maxsize=1)
def _statm(process: int) -> int | None:
    """The file that tells it, open: it is read several times a step, and after a fork it would be the parent's."""
    try:
        return os.open(f"/proc/{process}/statm", os.O_RDONLY)
    except OSError:
        return None


class NoMeter:
    """A device that tells nothing."""

    peak: int | None = None

    def begin(self, model: nn.Module, *, closely: bool) -> None:
        """Nothing to do."""

    def look(self) -> None:
        """Nothing to do."""

    def end(self, *, closely: bool) -> None:
        """Nothing to do."""

    def fits(self, factor: float) -> bool:
        """Nobody knows: try it."""
        del factor
        return True

    def limit(self) -> None:
        """Nobody knows."""


Meter = DeviceMeter | HostMeter | NoMeter


def meter_for(device: torch.device, budget: int | None) -> Meter:
    """The meter of a device; a budget for a GPU, or what a driver would spill, becomes the cap of its allocator."""
    if device.type == "cuda":
        meter = DeviceMeter(device)
        if budget is not None:
            _cap(device, budget)
        else:
            cap_below_spill(meter.device, _fraction(meter.device))
        return meter
    return HostMeter(budget) if device.type == "cpu" else NoMeter()


def _cap(device: torch.device, budget: int) -> None:
    free, total = torch.cuda.mem_get_info(device)
    outside = outside_torch(total - free, torch.cuda.memory_reserved(device))
    torch.cuda.set_per_process_memory_fraction(min(max((budget - outside) / total, 0.0), 1.0), device)


def outside_torch(used: int, reserved: int) -> int:
    """What this process holds of a GPU beside torch's memory: the rest of all that is used, unless others use it too.

    Args:
        used: bytes of the GPU, by whomever.
        reserved: bytes of this process's allocator.
    """
    return min(max(used - reserved, 0), OUTSIDE[-1])
