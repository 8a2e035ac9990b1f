"""Memory that a step used and memory that is available, read without waiting for the device."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from ..errors import UsageError
from ..machine import MemoryWatch, rss_bytes
from ..patches import allocator_limit, cap_allocator, cap_allocator_below_spill, eager_modules
from ..prediction import Prediction
from ..units import format_size

Predict = Callable[[int], "int | Prediction"]

_MAX_FILL = 0.95  # fraction of the limit that an extrapolated peak may use
_STATS_SECONDS = 0.5  # between two reads of the CUDA allocator's statistics, which are slow
_LEARNING_STEPS = 3  # steps until the growth of a step is known


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


class HostMemory(MemoryWatch):
    """The RAM of this process, checked before each module runs.

    A compiled model is one module. While many times the growth of a step is available, a check per forward is enough.

    Args:
        budget: bytes that this process may use; by default what the machine and its cgroups have left.
    """

    def __init__(self, budget: int | None) -> None:
        super().__init__(budget)
        self._steps, self._max_growth = 0, 0

    @contextlib.contextmanager
    def watch(self, model: nn.Module, *, reset_peak: bool) -> Iterator[None]:
        """Measure the peak of a step and check before each module if memory is short."""
        del reset_peak  # reading the RSS costs the same either way
        self.start()
        handles: list[RemovableHandle] = []
        if self._steps < _LEARNING_STEPS or not self.is_ample(self._max_growth):
            # Removed after the step: a model with hooks could not be pickled.
            handles = [module.register_forward_pre_hook(self._before_module) for module in eager_modules(model)]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
            self._steps, self._max_growth = self._steps + 1, max(self._max_growth, self.stop())

    def _before_module(self, module: nn.Module, inputs: Any) -> None:
        del module, inputs
        if not torch.compiler.is_compiling():  # the hook must not become part of a compiled graph
            self.check()


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
    """Return the memory of a device; a budget for a GPU becomes the cap of its allocator.

    Raises:
        UsageError: more than the budget is in use already.
    """
    if device.type == "cuda":
        memory = CudaMemory(device)
        _check_budget(budget, torch.cuda.memory_allocated(memory.device), "the GPU's tensors")
        if budget is None:
            cap_allocator_below_spill(memory.device)
        else:
            cap_allocator(memory.device, budget)
        return memory
    if device.type == "cpu":
        _check_budget(budget, rss_bytes(), "this process")
        return HostMemory(budget)
    return NullMemory()


def _check_budget(budget: int | None, used: int, user: str) -> None:
    if budget is not None and used >= budget:
        raise UsageError(
            f"the budget is {format_size(budget)}, but {format_size(used)} are in use by {user} already",
            "raise the budget, or free memory before you create the guard",
        )


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
