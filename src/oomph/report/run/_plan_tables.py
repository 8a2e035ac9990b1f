"""What was planned: requested against planned settings, and each change with its reason and cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from ...planner import Plan
from ...settings import Settings
from ...units import format_size
from .._text import duration
from ..page import PageTable


def plan_sentences(plan: Plan) -> Iterator[str]:
    """Yield what the plan is, in sentences."""
    need, requested = plan.planned_need.device, plan.requested_need.device
    budget = format_size(plan.budget)
    if plan.reserved:
        total, reserved = format_size(plan.budget + plan.reserved), format_size(plan.reserved)
        budget += f" ({total} minus {reserved} for loaded batches and the guard)"
    yield (
        f"The requested settings need {format_size(requested.value)} (up to {format_size(requested.high)}), the "
        f"planned ones {format_size(need.value)} (up to {format_size(need.high)}); the budget is {budget}."
    )
    yield "The requested settings fit, so nothing was changed." if not plan.changes else "The plan changed this:"


def changes_table(plan: Plan) -> PageTable | None:
    """Return the changes of a plan; None if there are none."""
    if not plan.changes:
        return None
    rows = [
        (change.what, change.why, change.cost, _signed_size(change.bytes), _signed_time(change.seconds))
        for change in plan.changes
    ]
    return PageTable(("change", "why", "effect on results", "memory", "time of a step"), tuple(rows))


def settings_table(plan: Plan) -> PageTable:
    """Return the settings, with the requested ones beside the planned ones."""
    rows = []
    for name, requested, planned in setting_pairs(plan):
        rows.append((name, requested, planned if planned != requested else "same"))
    for name, requested_need, planned_need in (
        ("predicted need", plan.requested_need.device, plan.planned_need.device),
        ("predicted allocated", plan.requested_need.allocated, plan.planned_need.allocated),
    ):
        rows.append((name, format_size(requested_need.value), format_size(planned_need.value)))
    before, after = plan.requested_need.seconds.value, plan.planned_need.seconds.value
    rows.append(("predicted time of a step", duration(before), duration(after)))
    return PageTable(("setting", "requested", "planned"), tuple(rows))


def setting_pairs(plan: Plan) -> Iterator[tuple[str, str, str]]:
    """Yield the name of each setting with its requested and planned value."""
    for field in fields(Settings):
        requested, planned = (_setting_text(getattr(item, field.name)) for item in (plan.requested, plan.settings))
        yield field.name.replace("_", " "), requested, planned


def _setting_text(value: object) -> str:
    if value is None:
        return "whole batch"
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    return str(value)


def _signed_size(size: int | None) -> str:
    return "" if size is None else f"{'-' if size < 0 else '+'}{format_size(abs(size))}"


def _signed_time(seconds: float | None) -> str:
    return "" if seconds is None else f"{'-' if seconds < 0 else '+'}{duration(abs(seconds))}"
