"""Memory that a step used and memory that is available, read without waiting for the device."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from ..machine import HostMemoryReader, rss_bytes
from ..patches import allocator_limit, cap_allocator, cap_allocator_below_spill
from ..prediction import Prediction
from ..units import MIB, format_size

Predict = Callable[[int], "int | Prediction"]

_MAX_FILL = 0.95  # fraction of the limit that an extrapolated peak may use
_STATS_SECONDS = 0.5  # between two reads of the CUDA allocator's statistics, which are slow
_RSS_SECONDS = 0.002  # between two reads of the RSS
_HOST_SECONDS = 0.5  # between two reads of the machine's free memory
_MIN_FREE_BYTES = 64 * MIB  # that must stay free on the host
_AMPLE_FACTOR = 8  # with this many times the growth of a step available, modules aren't watched one by one
_LEARNING_STEPS = 3  # steps until that growth is known


class CudaMemory:
    """The caching allocator of a CUDA device. Its peak statistics are reset only before a larger micro-batch."""

    def __init__(self, device: torch.device) -> None:
        index: int | None = device.index  # torch's memory functions need one
        self.device = torch.device("cuda", torch.cuda.current_device() if index is None else index)
        self._base, self._read_at = 0, -_STATS_SECONDS
        self.peak: int | None = None

    @contextlib.contextmanager
    def watch(self, model: nn.Module, *, reset_peak: bool) -> Iterator[None]:
        """Measure the peak of a step; a reset peak is that of this step alone."""
        del model
        if reset_peak:
            torch.cuda.reset_peak_memory_stats(self.device)
            self._base = torch.cuda.memory_allocated(self.device)
        try:
            yield
        finally:
            now = time.monotonic()
            if reset_peak or now >= self._read_at + _STATS_SECONDS:
                self._read_at, self.peak = now, torch.cuda.max_memory_allocated(self.device)

    def check(self) -> None:
        """Do nothing: the allocator raises by itself."""

    def fits(self, factor: float) -> bool:
        """Return True if the measured growth of a step, multiplied by a factor, fits."""
        if self.peak is None or self.peak <= self._base:
            return True
        return self._base + factor * (self.peak - self._base) <= _MAX_FILL * self.limit()

    def limit(self) -> int:
        """Return the bytes that the allocator may reserve in total."""
        return allocator_limit(self.device)


class HostMemoryLow(MemoryError):
    """The host is almost out of memory: raised by the guard before the kernel kills the process."""


class HostMemory:
    """The RSS of this process, checked before each module runs, because nothing raises when RAM runs out.

    A compiled model is one module. While many times the growth of a step is available, a check per forward is enough.

    Args:
        budget: bytes that this process may use; by default what the machine and its cgroups have left.
    """

    def __init__(self, budget: int | None) -> None:
        self._budget = budget
        self._reader = HostMemoryReader() if budget is None else None
        self._steps, self._max_step_growth = 0, 0
        self._base = self._last_rss = self._module_growth = 0
        self._checked_at, self._is_near_limit = 0.0, True
        self._host_read_at, self._host_read_rss, self._host_available = -_HOST_SECONDS, 0, 0
        self.peak: int | None = None

    @contextlib.contextmanager
    def watch(self, model: nn.Module, *, reset_peak: bool) -> Iterator[None]:
        """Measure the peak of a step and watch its modules if memory is short."""
        del reset_peak  # reading the RSS costs the same either way
        self._base = self._last_rss = self.peak = rss_bytes()
        self._checked_at, self._module_growth, self._is_near_limit = 0.0, 0, True
        handles: list[RemovableHandle] = []
        if self._steps < _LEARNING_STEPS or not self._is_ample(self._base, self._max_step_growth):
            # Removed after the step: a model with hooks could not be pickled.
            handles = [module.register_forward_pre_hook(self._before_module) for module in eager_modules(model)]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
            self._note(rss_bytes())
            self._steps, self._max_step_growth = self._steps + 1, max(self._max_step_growth, self.peak - self._base)

    def _before_module(self, module: nn.Module, inputs: Any) -> None:
        del module, inputs
        if not torch.compiler.is_compiling():  # the hook must not become part of a compiled graph
            self.check()

    def check(self) -> None:
        """Check that another module with the largest growth so far would fit.

        Raises:
            HostMemoryLow: it would not.
        """
        now = time.monotonic()
        if now < self._checked_at + _RSS_SECONDS and not self._is_near_limit:
            return
        self._checked_at = now
        rss = rss_bytes()
        self._note(rss)
        available = self._available(rss)
        self._is_near_limit = not self._is_ample(rss, self._module_growth)
        if available < _MIN_FREE_BYTES + self._module_growth:
            raise HostMemoryLow(f"the host has {format_size(max(available, 0))} left")

    def _is_ample(self, rss: int, growth: int) -> bool:
        return self._available(rss) >= _AMPLE_FACTOR * (growth + _MIN_FREE_BYTES)

    def _note(self, rss: int) -> None:
        self._module_growth = max(self._module_growth, rss - self._last_rss)
        self._last_rss = rss
        self.peak = max(self.peak or 0, rss)

    def fits(self, factor: float) -> bool:
        """Return True if the measured growth of a step, multiplied by a factor, fits."""
        if self.peak is None:
            return True
        return factor * (self.peak - self._base) <= _MAX_FILL * self._available(rss_bytes())

    def limit(self) -> int:
        """Return the bytes that this process may use in total."""
        rss = rss_bytes()
        return rss + self._available(rss)

    def _available(self, rss: int) -> int:
        if self._reader is None:
            assert self._budget is not None  # noqa: S101  there is a budget or a reader
            return self._budget - rss
        now, growth = time.monotonic(), rss - self._host_read_rss
        if now < self._host_read_at + _HOST_SECONDS and growth < self._host_available / 4:
            return self._host_available - growth
        self._host_read_at, self._host_read_rss = now, rss
        self._host_available = _available_on_host(self._reader)
        return self._host_available


def _available_on_host(reader: HostMemoryReader) -> int:
    reading = reader.read()
    bounds = [reading.ram_available]
    if reading.cgroup_limit is not None and reading.cgroup_used is not None:
        bounds.append(reading.cgroup_limit - reading.cgroup_used)
    return min((bound for bound in bounds if bound is not None), default=1 << 62)


class NullMemory:
    """A backend without memory statistics."""

    peak: int | None = None

    @contextlib.contextmanager
    def watch(self, model: nn.Module, *, reset_peak: bool) -> Iterator[None]:
        """Measure nothing."""
        del model, reset_peak
        yield

    def check(self) -> None:
        """Check nothing."""

    def fits(self, factor: float) -> bool:
        """Return True: it has to be tried."""
        del factor
        return True

    def limit(self) -> None:
        """Return None: the limit is unknown."""


Memory = CudaMemory | HostMemory | NullMemory


def memory_of(device: torch.device, budget: int | None) -> Memory:
    """Return the memory of a device; a budget for a GPU becomes the cap of its allocator."""
    if device.type == "cuda":
        memory = CudaMemory(device)
        if budget is None:
            cap_allocator_below_spill(memory.device)
        else:
            cap_allocator(memory.device, budget)
        return memory
    return HostMemory(budget) if device.type == "cpu" else NullMemory()


def eager_modules(module: nn.Module) -> Iterator[nn.Module]:
    """Yield the modules that run eagerly; a hook inside a compiled module would break its graph."""
    if isinstance(module, torch.jit.ScriptModule):
        return
    if getattr(module, "_compiled_call_impl", None) is None and not hasattr(module, "_orig_mod"):
        yield module
        for child in module.children():
            yield from eager_modules(child)


class FitPredictor:
    """Predicts whether a micro-batch fits: with the user's predictor, or else from the measured peak.

    Args:
        predict: returns what a step needs with micro-batches of that size: bytes of the CUDA allocator (on the CPU: of
            the process), or a Prediction; None without a predictor.
        memory: the memory of the device.
    """

    def __init__(self, predict: Predict | None, memory: Memory) -> None:
        self._predict, self._memory = predict, memory
        self._needs: dict[int, int] = {}

    def fits(self, size: int, current_size: int) -> bool:
        """Return True if micro-batches of a size fit, given the peak with the current size."""
        if self._predict is None:
            return self._memory.fits(size / max(1, current_size))
        if size not in self._needs:
            need = self._predict(size)
            if isinstance(need, Prediction):
                estimate = need.device if isinstance(self._memory, HostMemory) else need.full_speed
                need = int(estimate.value)
            self._needs[size] = need
        limit = self._memory.limit()
        return limit is None or self._needs[size] <= limit
