"""The measured step in two passes has the gradient of the whole batch."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import oomph
from oomph.errors import UsageError
from oomph.monitor import TrainingStep


def squared_sum(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return a loss that is no mean over samples."""
    del targets
    return outputs.sum(0).square().sum()


def batch(samples: int, size: object) -> tuple[Tensor, Tensor]:
    """Return samples that are the same in each call."""
    del size
    return torch.linspace(-1, 1, samples * 4).double().view(samples, 4), torch.arange(samples)


def job(**options: object) -> oomph.Job:
    def net() -> nn.Module:
        torch.manual_seed(0)
        return nn.Linear(4, 3).double()

    functions = {
        "model": net,
        "batch": batch,
        "loss": squared_sum,
        "optimizer": lambda model: torch.optim.SGD(model.parameters(), lr=0.5),
    }
    return oomph.Job(**{**functions, **options})  # type: ignore[arg-type]


def test_two_passes_over_the_same_samples_learn_what_one_does() -> None:
    """Both micro-batches are the first four samples, so the whole batch is these twice."""

    def twice(samples: int, size: object) -> tuple[Tensor, Tensor]:
        inputs, _ = batch(4, size)
        return inputs.repeat(samples // 4, 1), torch.arange(samples)

    def weights(settings: oomph.Settings) -> Tensor:
        step = TrainingStep(job(batch=twice), settings, torch.device("cpu"))
        step.run()
        return next(step._model.parameters()).detach()

    one, two = weights(oomph.Settings(8)), weights(oomph.Settings(8, 4, passes=2))
    torch.testing.assert_close(two, one, rtol=1e-12, atol=1e-14)
    split = weights(oomph.Settings(8, 4))
    assert not torch.allclose(split, one, rtol=1e-6)


def test_a_step_can_not_run_in_two_passes() -> None:
    steps = job(loss=None, step=lambda model, batch: model(batch[0]).sum())
    with pytest.raises(UsageError, match="two passes need the outputs of the model"):
        TrainingStep(steps, oomph.Settings(8, 4, passes=2), torch.device("cpu")).run()


def test_passes_are_one_or_two() -> None:
    with pytest.raises(UsageError, match="passes is 3; set it to 1 or 2"):
        oomph.Settings(8, 4, passes=3)


@pytest.mark.medium
def test_two_passes_need_less_than_the_whole_batch_and_more_than_one_pass() -> None:
    def net() -> nn.Module:
        return nn.Sequential(*(nn.Linear(256, 256) for _ in range(8)))

    def inputs(samples: int, size: object) -> tuple[Tensor, Tensor]:
        del size
        return torch.zeros(samples, 256), torch.arange(samples)

    tower = job(model=net, batch=inputs)
    needs = [
        oomph.predict(tower, settings, "H200").allocated.value
        for settings in (oomph.Settings(8192), oomph.Settings(8192, 2048, passes=2), oomph.Settings(8192, 2048))
    ]
    assert needs[0] > needs[1] > needs[2]
