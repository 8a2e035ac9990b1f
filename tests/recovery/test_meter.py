"""What the guard takes for its own of a GPU's memory."""

from __future__ import annotations

from oomph.machine import OUTSIDE
from oomph.recovery._meter import outside_torch
from oomph.units import GIB, MIB


def test_alone_on_a_gpu_the_context_is_what_is_used_beside_torch() -> None:
    assert outside_torch(used=1543 * MIB, reserved=GIB) == 519 * MIB
    assert outside_torch(used=0, reserved=GIB) == 0


def test_what_other_processes_hold_is_not_taken_off_the_budget() -> None:
    assert outside_torch(used=22 * GIB, reserved=GIB) == OUTSIDE[-1]
