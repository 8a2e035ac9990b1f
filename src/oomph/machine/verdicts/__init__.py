"""Verdicts on a machine, worst first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import _graphics, _host, _places, _torch
from ._verdict import Load, Severity, Verdict

if TYPE_CHECKING:
    from .._machine import Machine

__all__ = ["Load", "Severity", "Verdict", "default_workers", "judge"]

_RULES = (
    _graphics.driver_failed,
    _torch.torch_missing,
    _torch.torch_unfit,
    _torch.gpu_not_passed,
    _graphics.held_by_others,
    _graphics.slowed_down,
    _graphics.divided,
    _torch.torchvision_broken,
    _host.commit_short,
    _host.address_limit,
    _host.data_limit,
    _host.killed_before,
    _host.swapping,
    _host.under_pressure,
    _host.no_swap,
    _host.hidden_limit,
    _host.memory_unknown,
    _places.shm_small,
    _places.folder_readonly,
    _places.disk_full,
    _places.few_cores,
)


def judge(machine: Machine, load: Load | None = None) -> tuple[Verdict, ...]:
    """Judge a machine for a data-loading setup; an empty answer means that nothing is wrong with it."""
    asked = load or Load(workers=default_workers(machine))
    found = [verdict for rule in _RULES for verdict in rule(machine, asked)]
    order = list(Severity)
    return tuple(sorted(found, key=lambda verdict: order.index(verdict.severity)))


def default_workers(machine: Machine) -> int:
    """What most training scripts ask for: eight, or as many as there are cores."""
    return min(8, max(int(machine.cores.usable.known or 1), 1))
