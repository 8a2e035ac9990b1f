from __future__ import annotations

import pytest
import torch
from torch import nn

from oomph import Job, Settings, UsageError, plan, predict


def job() -> Job:
    return Job.of(
        nn.Linear(4, 2),
        (torch.randn(8, 4), torch.randn(8, 2)),
        loss=nn.functional.mse_loss,
        optimizer=lambda model: torch.optim.SGD(model.parameters(), 0.1),
    )


def test_job_needs_settings() -> None:
    with pytest.raises(UsageError, match="a Job was passed without settings"):
        predict(job(), target="cpu")


def test_object_of_no_framework_is_rejected_by_its_type() -> None:
    for function in (predict, plan):
        with pytest.raises(UsageError, match="a Linear can't be predicted"):
            function(nn.Linear(1, 1), target="cpu")


def test_target_is_this_machine_by_default() -> None:
    assert predict(job(), Settings(batch=8)).host.value > 0
