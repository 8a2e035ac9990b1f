from __future__ import annotations

import importlib.util

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from oomph.errors import UsageError
from oomph.job import Job
from oomph.machine import find_target
from oomph.planner import JobPredictor, Plan, PlanRequest, plan_fastest, read_allowed
from oomph.settings import Settings
from oomph.units import MIB

TARGET = find_target("H200")
JOB = Job(
    model=lambda: nn.Sequential(*(nn.Linear(2048, 2048) for _ in range(8))),
    batch=lambda count, _: (torch.randn(count, 2048), torch.randn(count, 2048)),
    loss=F.mse_loss,
    optimizer=lambda model: torch.optim.AdamW(model.parameters(), 0.1),
)


def planned(*allow: str) -> Plan:
    request = PlanRequest(Settings(batch=8), TARGET, 1450 * MIB, allow=allow, fixed=frozenset({"checkpointing"}))
    return plan_fastest(request, JobPredictor(JOB, TARGET))


def test_the_permission_is_known() -> None:
    assert read_allowed("optimizer,size") == ("optimizer", "size")
    with pytest.raises(UsageError, match="use precision, optimizer or size"):
        read_allowed("speed")


@pytest.mark.medium
@pytest.mark.skipif(importlib.util.find_spec("torchao") is None, reason="torchao is optional")
def test_states_have_8_bits_where_that_is_allowed_and_memory_is_short() -> None:
    plan = planned("optimizer")
    assert plan.settings.optimizer == "8bit"
    change = next(change for change in plan.changes if "8 bits" in change.what)
    assert change.bytes is not None
    assert change.bytes < -0.95 * 6 * 8 * 2048 * 2048  # and what a multi-tensor update needs in addition
    assert not [change for change in plan.changes if "fused" in change.what]
