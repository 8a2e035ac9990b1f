"""What a plan is asked for."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import CannotFit, UsageError, quote
from ..machine import Target
from ..settings import Settings
from ..units import format_size, parse_size

GOALS = ("fastest", "largest-batch")
PERMISSIONS = ("precision", "optimizer", "size")  # changes that affect results need the user's permission


@dataclass(frozen=True)
class PlanRequest:
    """What a plan is asked for.

    Attributes:
        settings: the requested settings.
        target: where they run.
        budget: bytes of the device, as nvidia-smi shows them; on the CPU, of the process.
        allow: what may change although it affects results: "precision", "optimizer", "size".
        max_slowdown: how many times longer a step may take than without a limit of memory; None for any time.
        min_micro_batch: the smallest acceptable micro-batch; BatchNorm needs two samples.
        fixed: names of settings that stay as they are.
        equal_parts: True if all micro-batches of a batch must have the same size.
    """

    settings: Settings
    target: Target
    budget: int
    allow: tuple[str, ...] = ()
    max_slowdown: float | None = None
    min_micro_batch: int = 1
    fixed: frozenset[str] = frozenset()
    equal_parts: bool = False

    def __post_init__(self) -> None:
        check_allowed(self.allow)
        if self.max_slowdown is not None and self.max_slowdown < 1:
            raise UsageError(f"max_slowdown is {self.max_slowdown}", "set it to at least 1, such as 1.5")


def read_budget(budget: int | str | None, target: Target) -> int:
    """Return the bytes of the device that may be used; by default all of its memory.

    Raises:
        CannotFit: CUDA alone takes more.
        UsageError: the text is no size.
    """
    available = target.memory if budget is None else min(parse_size(budget), target.memory)
    if available <= target.outside[0]:
        raise CannotFit(
            f"CUDA alone takes {format_size(target.outside[0])}, and the budget is {format_size(available)}",
            "raise the budget",
        )
    return available


def check_allowed(allow: tuple[str, ...], permissions: tuple[str, ...] = PERMISSIONS) -> None:
    """Raise UsageError for a permission that doesn't exist."""
    unknown = next((name for name in allow if name not in permissions), None)
    if unknown is not None:
        choices = f"{', '.join(permissions[:-1])} or {permissions[-1]}"
        raise UsageError(f"{quote(unknown)} can't be allowed", f"use {choices}, or several separated by commas")


def read_allowed(text: str, permissions: tuple[str, ...] = PERMISSIONS) -> tuple[str, ...]:
    """Parse permissions such as "precision,size"; a command may know only some of them.

    Raises:
        UsageError: the text names an unknown permission.
    """
    allow = tuple(name.strip() for name in text.split(",") if name.strip())
    check_allowed(allow, permissions)
    return allow
