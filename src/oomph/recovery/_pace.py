"""How long steps work and wait for data, and the numbers of a step, for the Record: without ever waiting for a GPU."""

from __future__ import annotations

import enum
import time
from typing import Any

import torch
from torch import Tensor

from ._step_report import StepReport

_EVERY = 0.05  # seconds between two looks at a GPU, each of which costs some microseconds


class HostPace:
    """On the CPU everything is known when a step ends; it has waited from the end of the last one to its begin."""

    def __init__(self) -> None:
        self._ended: float | None = None
        self._wait: float | None = None

    def begin(self, now: float) -> None:
        """A step begins."""
        self._wait = None if self._ended is None else now - self._ended

    def end(self, report: StepReport, norm: Tensor | float | None, number: int) -> dict[str, Any]:
        """A step has ended: what the Record should have of it."""
        del number
        self._ended = time.perf_counter()
        return {"wait": self._wait, "loss": report.loss.item(), "grad_norm": _clipped(report, norm)}

    def pause(self) -> None:
        """Something else than loading data comes before the next step."""
        self._ended = None


class _State(enum.Enum):
    IDLE = "idle"
    BEGUN = "a step that is looked at has begun"
    ENDED = "and ended"
    FOLLOWED = "and the next one has begun"


class DevicePace:
    """On a GPU now and then one step is looked at, by events, and told when a later one ends and all of it is over.

    It has waited for as long as the GPU stood still between its end and the begin of the next step: the host runs ahead
    of the device, so that its own clock says nothing of that.

    Args:
        device: the GPU.
    """

    def __init__(self, device: torch.device) -> None:
        self._device, self._state, self._due, self._number = device, _State.IDLE, 0.0, 0
        self._before, self._after, self._next = (torch.cuda.Event(enable_timing=True) for _ in range(3))
        self._values = torch.empty(2, pin_memory=True)
        self._has_norm = False

    def begin(self, now: float) -> None:
        """A step begins."""
        if self._state is _State.ENDED:
            self._mark(self._next, _State.FOLLOWED)
        elif self._state is _State.IDLE and now >= self._due:
            self._due = now + _EVERY
            self._mark(self._before, _State.BEGUN)

    def end(self, report: StepReport, norm: Tensor | float | None, number: int) -> dict[str, Any]:
        """A step has ended: what the Record should have, of an earlier one."""
        if self._state is _State.BEGUN:
            self._number = number
            self._values[:1].copy_(report.loss.reshape(1), non_blocking=True)
            self._has_norm = False
            if isinstance(norm, Tensor) and _tells(report):
                self._has_norm = True
                self._values[1:].copy_(norm.reshape(1), non_blocking=True)
            self._mark(self._after, _State.ENDED)
        elif self._state is _State.FOLLOWED and self._next.query():
            self._state = _State.IDLE
            loss, found = self._values.tolist()
            return {
                "late": number - self._number,
                "device_seconds": self._before.elapsed_time(self._after) / 1000,
                "wait": self._after.elapsed_time(self._next) / 1000,
                "loss": loss,
                "grad_norm": found if self._has_norm else None,
            }
        return {}

    def pause(self) -> None:
        """Something else than loading data comes before the next step."""
        if self._state in {_State.BEGUN, _State.ENDED}:
            self._state = _State.IDLE

    def _mark(self, event: torch.cuda.Event, state: _State) -> None:
        event.record(torch.cuda.current_stream(self._device))
        self._state = state


Pace = HostPace | DevicePace


def pace_for(device: torch.device) -> Pace | None:
    """The pace of a device's steps; None where nothing can be told without waiting."""
    if device.type == "cuda":
        return DevicePace(device)
    return HostPace() if device.type == "cpu" else None


def _tells(report: StepReport) -> bool:
    """Whether a norm means anything: that of an update which a scaler skips, or may have skipped, is infinite."""
    return report.updated and report.skipped is False


def _clipped(report: StepReport, norm: Tensor | float | None) -> float | None:
    return None if norm is None or not _tells(report) else float(norm)
