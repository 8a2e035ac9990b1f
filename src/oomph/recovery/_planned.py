"""A plan that a guard carries out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torch import nn
from torch.optim import Optimizer

from ..errors import UsageError
from ..monitor import Recorder
from ..patches import AUTOCAST_DTYPES
from ..planner import Plan


def check_unplanned(**options: object) -> None:
    """Raise UsageError for an option that the plan sets."""
    for name, value in options.items():
        if value is not None:
            raise UsageError(f"{name} is given beside a plan, which sets it", f"omit {name}, or the plan")


def carry_out(plan: Plan, model: nn.Module, optimizers: Sequence[Optimizer]) -> tuple[int | None, str | None, int]:
    """Apply a plan to a model and its optimizers; return micro-batch, precision and budget for the guard.

    Mixed precision is the guard's: in it, the loss runs in autocast, too.
    """
    settings = plan.settings
    unmixed = replace(plan, settings=replace(settings, precision="fp32"))
    unmixed.apply(model, optimizers)
    precision = settings.precision if settings.precision in AUTOCAST_DTYPES else None
    return settings.micro_batch, precision, plan.budget


def record_plan(recorder: Recorder, plan: Plan) -> None:
    """Write a plan into the Record, and what it predicts."""
    need = plan.planned_need
    sizes = {name: int(getattr(need, name).value) for name in ("allocated", "reserved", "host")}
    recorder.event("plan", plan=plan.document())
    recorder.event("prediction", **sizes, budget=plan.budget + plan.reserved, target=need.target)
