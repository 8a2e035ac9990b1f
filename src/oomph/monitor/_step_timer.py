"""Durations, waits and losses of training steps for the Record, read without waiting for a GPU."""

from __future__ import annotations

import enum
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_SAMPLE_SECONDS = 0.05  # between two steps that are timed on a GPU


class HostStepTimer:
    """Times steps on the CPU, where everything is known when a step ends.

    A step waited for data from the end of the previous step to its own start.
    """

    def __init__(self) -> None:
        self._ended_at: float | None = None
        self._wait: float | None = None

    def start(self, now: float) -> None:
        """Start timing a step."""
        self._wait = None if self._ended_at is None else now - self._ended_at

    def stop(self, step: int, loss: Tensor, grad_norm: Tensor | float | None) -> dict[str, Any]:
        """Stop timing a step and return its fields for the Record."""
        del step
        self._ended_at = time.perf_counter()
        norm = None if grad_norm is None else float(grad_norm)
        return {"wait": self._wait, "loss": loss.item(), "grad_norm": norm}

    def pause(self) -> None:
        """Don't count the time until the next step as a wait for data."""
        self._ended_at = None


class _State(enum.Enum):
    IDLE = "no step is being timed"
    STARTED = "the timed step has started"
    STOPPED = "the timed step has been enqueued"
    FOLLOWED = "the next step has started"


class CudaStepTimer:
    """Times a step on a GPU now and then, with events that are read in a later step, when the GPU has passed them.

    The wait of a step is the time that the GPU was idle before the next one: the host runs ahead of the GPU, so the
    host's clock can't tell.
    """

    def __init__(self, device: torch.device) -> None:
        import torch  # noqa: PLC0415  this package imports no torch

        self._stream = lambda: torch.cuda.current_stream(device)
        self._state, self._due_at, self._step = _State.IDLE, 0.0, 0
        self._start, self._end, self._next_start = (torch.cuda.Event(enable_timing=True) for _ in range(3))
        self._values = torch.empty(2, pin_memory=True)
        self._has_norm = False

    def start(self, now: float) -> None:
        """Start timing a step, if it is time."""
        if self._state is _State.STOPPED:
            self._mark(self._next_start, _State.FOLLOWED)
        elif self._state is _State.IDLE and now >= self._due_at:
            self._due_at = now + _SAMPLE_SECONDS
            self._mark(self._start, _State.STARTED)

    def stop(self, step: int, loss: Tensor, grad_norm: Tensor | float | None) -> dict[str, Any]:
        """Stop timing a step and return the fields of an earlier one, if its events have passed."""
        if self._state is _State.STARTED:
            self._step = step
            self._values[:1].copy_(loss.reshape(1), non_blocking=True)
            self._has_norm = grad_norm is not None and not isinstance(grad_norm, float)
            if grad_norm is not None and not isinstance(grad_norm, float):
                self._values[1:].copy_(grad_norm.reshape(1), non_blocking=True)
            self._mark(self._end, _State.STOPPED)
        elif self._state is _State.FOLLOWED and self._next_start.query():
            self._state = _State.IDLE
            loss_value, norm = self._values.tolist()
            return {
                "late": step - self._step,
                "device_seconds": self._start.elapsed_time(self._end) / 1000,
                "wait": self._end.elapsed_time(self._next_start) / 1000,
                "loss": loss_value,
                "grad_norm": norm if self._has_norm else None,
            }
        return {}

    def pause(self) -> None:
        """Don't time the step before something else than loading data."""
        if self._state in {_State.STARTED, _State.STOPPED}:
            self._state = _State.IDLE

    def _mark(self, event: torch.cuda.Event, state: _State) -> None:
        event.record(self._stream())  # type: ignore[no-untyped-call]
        self._state = state


class NullStepTimer:
    """Times nothing: for a run without a Record, or a device that can't be read without waiting."""

    def start(self, now: float) -> None:
        """Do nothing."""

    def stop(self, step: int, loss: Tensor, grad_norm: Tensor | float | None) -> dict[str, Any]:
        """Return no fields."""
        del step, loss, grad_norm
        return {}

    def pause(self) -> None:
        """Do nothing."""


def step_timer(device: torch.device | None) -> HostStepTimer | CudaStepTimer | NullStepTimer:
    """Return the timer of a device's steps; without a device, one that does nothing."""
    if device is not None and device.type == "cuda":
        return CudaStepTimer(device)
    return HostStepTimer() if device is not None and device.type == "cpu" else NullStepTimer()
