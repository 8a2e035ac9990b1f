from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oomph.job import Job
from oomph.machine import find_target
from oomph.planner import JobPredictor, PlanRequest, plan_fastest, plan_largest_batch
from oomph.settings import Settings
from oomph.units import GIB

TARGET = find_target("H200")
BATCH = 4096


def job_with(classes: int, loss: Any = F.cross_entropy) -> Job:
    def batch(count: int, size: Any) -> tuple[Tensor, Tensor]:
        del size
        return torch.randn(count, 32), torch.randint(classes, (count,))

    return Job(
        model=lambda: nn.Linear(32, classes),
        batch=batch,
        loss=loss,
        optimizer=lambda model: torch.optim.SGD(model.parameters(), 0.1),
    )


def planned(job: Job, budget: float) -> Any:
    request = PlanRequest(Settings(batch=BATCH), TARGET, int(budget), fixed=frozenset({"micro_batch", "checkpointing"}))
    return plan_fastest(request, JobPredictor(job, TARGET))


def test_many_classes_are_computed_in_chunks_where_memory_is_short() -> None:
    job = job_with(20_000)
    plan = planned(job, 2 * GIB)
    assert plan.settings.loss_chunks == 8
    assert plan.requested_need.device.high > 2 * GIB >= plan.planned_need.device.high
    change = next(change for change in plan.changes if "chunks" in change.what)
    assert change.what == "the cross entropy is computed in 8 chunks of rows"
    assert change.bytes is not None
    assert change.bytes < -0.4 * BATCH * 20_000 * 4
    assert planned(job, 8 * GIB).settings.loss_chunks == 1


def test_few_classes_and_other_losses_have_no_chunks() -> None:
    assert JobPredictor(job_with(4096), TARGET).profile(Settings(batch=8)).classes == 4096
    assert planned(job_with(4096), 1.5 * GIB).settings.loss_chunks == 1

    def other_loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return F.nll_loss(outputs.log_softmax(1), targets)

    request = PlanRequest(Settings(batch=64), TARGET, 4 * GIB)
    assert plan_largest_batch(request, JobPredictor(job_with(8192, other_loss), TARGET)).settings.loss_chunks == 1


@pytest.mark.large
def test_the_largest_batch_is_larger_with_chunks() -> None:
    job, request = job_with(20_000), PlanRequest(Settings(batch=BATCH), TARGET, 4 * GIB)
    plan = plan_largest_batch(request, JobPredictor(job, TARGET))
    fixed = PlanRequest(Settings(batch=BATCH), TARGET, 4 * GIB, fixed=frozenset({"loss_chunks"}))
    without = plan_largest_batch(fixed, JobPredictor(job, TARGET))
    assert plan.settings.loss_chunks == 8
    assert plan.settings.batch > 1.2 * without.settings.batch
