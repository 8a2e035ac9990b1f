"""The result of planning."""

from __future__ import annotations

from dataclasses import dataclass

from ..prediction import Prediction
from ..settings import Settings


@dataclass(frozen=True)
class PlanChange:
    """One change to the requested settings.

    Attributes:
        what: what changes.
        why: the reason.
        cost: what it costs beside time.
        bytes: bytes of memory that it adds, negative if it saves some; None if it wasn't estimated alone.
        seconds: seconds that it adds to a step, negative if it saves some; None if it wasn't estimated alone.
    """

    what: str
    why: str
    cost: str
    bytes: int | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class Alternative:
    """Other settings than the planned ones.

    Attributes:
        settings: the settings.
        memory: estimated bytes of the device.
        seconds: estimated seconds of a step.
        why_not: why they were not chosen.
    """

    settings: Settings
    memory: int
    seconds: float
    why_not: str


@dataclass(frozen=True)
class Plan:
    """Settings that fit.

    Attributes:
        requested: the requested settings.
        settings: the settings to train with.
        budget: bytes of the device (on the CPU: of the process) that they must fit into.
        requested_need: the prediction for the requested settings.
        planned_need: the prediction for the settings to train with; its seconds are of the whole batch.
        changes: the changes from the requested to the planned settings.
        alternatives: other settings, from little memory to much.
        reserved: bytes of the user's budget that were reserved beforehand for memory that isn't predicted.
    """

    requested: Settings
    settings: Settings
    budget: int
    requested_need: Prediction
    planned_need: Prediction
    changes: tuple[PlanChange, ...]
    alternatives: tuple[Alternative, ...] = ()
    reserved: int = 0
