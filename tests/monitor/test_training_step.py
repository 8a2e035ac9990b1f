from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from oomph.job import Job
from oomph.monitor import TrainingStep
from oomph.settings import Settings


@dataclass
class Log:
    """Models and batch sizes of a Job."""

    models: list[nn.Module] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)
    dtypes: set[torch.dtype] = field(default_factory=set)


def make_job(log: Log) -> Job:
    def model() -> nn.Module:
        torch.manual_seed(0)
        log.models.append(nn.Linear(3, 2))
        return log.models[-1]

    def batch(samples: int, size: object) -> tuple[Tensor, Tensor]:
        del size
        log.batches.append(samples)
        return torch.ones(samples, 3), torch.zeros(samples, 2)

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        log.dtypes.add(outputs.dtype)
        return (outputs.float() - targets).square().mean()

    return Job(model, batch, loss, lambda module: torch.optim.SGD(module.parameters(), lr=0.1))


def weight_after_step(settings: Settings, log: Log) -> Tensor:
    TrainingStep(make_job(log), settings, torch.device("cpu")).run()
    weight = log.models[-1].get_parameter("weight")
    assert weight.grad is None
    return weight.detach()


def test_micro_batches_give_the_same_update() -> None:
    log = Log()
    whole = weight_after_step(Settings(batch=4), log)
    split = weight_after_step(Settings(batch=4, micro_batch=2), log)
    assert log.batches == [4, 2, 2]
    torch.testing.assert_close(whole, split)


@pytest.mark.parametrize(("precision", "dtype"), [("amp-bf16", torch.bfloat16), ("fp32", torch.float32)])
def test_forward_runs_under_autocast(precision: str, dtype: torch.dtype) -> None:
    log = Log()
    weight_after_step(Settings(batch=2, precision=precision), log)
    assert log.dtypes == {dtype}


def test_every_step_is_timed() -> None:
    step = TrainingStep(make_job(Log()), Settings(batch=2), torch.device("cpu"))
    assert all(seconds > 0 for seconds in step.time(3))


def test_chunks_and_offloading_give_the_same_update() -> None:
    def update(**settings: Any) -> tuple[Tensor, Tensor]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 64))
        job = Job(
            lambda: model,
            lambda samples, _: (torch.linspace(-1, 1, samples * 512).view(samples, 512), torch.arange(samples) % 64),
            nn.functional.cross_entropy,
            lambda module: torch.optim.SGD(module.parameters(), lr=0.1),
        )
        TrainingStep(job, Settings(batch=1024, **settings), torch.device("cpu")).run()
        return model.get_parameter("0.weight").detach(), model.get_parameter("2.weight").detach()

    expected = update()
    assert all(torch.equal(*pair) for pair in zip(update(offload=("",)), expected, strict=True))
    torch.testing.assert_close(update(loss_chunks=4), expected)
    logits = torch.randn(2, 3, requires_grad=True)
    loss = nn.functional.cross_entropy(logits, torch.tensor([0, 1]))
    assert "Chunked" not in type(loss.grad_fn).__name__  # the step leaves torch as it was
