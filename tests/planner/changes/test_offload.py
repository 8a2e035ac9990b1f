from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from oomph.job import Job
from oomph.machine import find_target
from oomph.planner import JobPredictor, PlanRequest, plan_fastest
from oomph.settings import Settings
from oomph.units import MIB

TARGET = find_target("H200")
TOKENS, WIDTH = 8192, 256  # a tensor of 8 MiB
BLOCKS = 12


def block() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH), nn.GELU())


JOB = Job(
    model=lambda: nn.Sequential(*(block() for _ in range(BLOCKS))),
    batch=lambda count, _: (torch.randn(count, TOKENS, WIDTH), torch.randn(count, TOKENS, WIDTH)),
    loss=F.mse_loss,
    optimizer=lambda model: torch.optim.SGD(model.parameters(), 0.1),
)
PREDICTOR = JobPredictor(JOB, TARGET)
SMALL = 1090 * MIB  # 900 of them outside the allocator


@pytest.mark.large
def test_activations_are_offloaded_only_if_nothing_else_fits() -> None:
    assert plan_fastest(PlanRequest(Settings(batch=1), TARGET, 1300 * MIB), PREDICTOR).settings.offload == ()
    plan = plan_fastest(PlanRequest(Settings(batch=1), TARGET, SMALL), PREDICTOR)
    assert plan.settings.offload == ("",)
    assert plan.planned_need.device.high <= SMALL
    assert plan.planned_need.host.value > plan.requested_need.host.value
    change = next(change for change in plan.changes if "pinned" in change.what)
    assert change.what == "activations of all modules are in pinned host memory until the backward pass"
    assert change.seconds is not None
    assert change.seconds > 0


@pytest.mark.medium
@pytest.mark.parametrize("checkpointed", [(), ("0", "1", "2")])
def test_the_estimate_is_near_the_trace(checkpointed: tuple[str, ...]) -> None:
    settings = Settings(batch=1, offload=("",), checkpointing=checkpointed or "none")
    estimate, prediction = PREDICTOR.profile(settings), PREDICTOR.predict(settings)
    assert estimate.memory(1, checkpointed, ("",)) == pytest.approx(prediction.allocated.value, rel=0.2)
    assert estimate.seconds(1, checkpointed, ("",)) == pytest.approx(prediction.seconds.value, rel=0.5)
    assert estimate.memory(1, checkpointed) > 2 * estimate.memory(1, checkpointed, ("",))
    assert estimate.seconds(1, checkpointed) < estimate.seconds(1, checkpointed, ("",))
