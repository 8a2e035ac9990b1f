from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch
from torch import nn

from oomph.errors import UsageError
from oomph.job import Job
from oomph.machine import find_target
from oomph.planner import PredictionTable, TablePosition, build_prediction_table
from oomph.prediction import predict
from oomph.settings import Settings

from .tables import classifier_job, random_position

VECTORS = Job(
    model=lambda: nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)),
    batch=lambda n, _: (torch.randn(n, 256), torch.randn(n, 256)),
    loss=nn.functional.mse_loss,
    optimizer=lambda model: torch.optim.AdamW(model.parameters()),
)


@pytest.mark.medium
def test_the_table_agrees_with_predictions(classifier_table: PredictionTable) -> None:
    rng, close = random.Random(3), 0  # noqa: S311  positions, not secrets
    for _ in range(12):
        position = random_position(classifier_table, rng)
        position = replace(position, batch=min(position.batch, 2 * position.micro_batch))
        prediction = predict(classifier_job(), classifier_table.settings_at(position), position.device)
        estimate = classifier_table.lookup(position)
        assert estimate.seconds.value == pytest.approx(prediction.seconds.value, rel=0.05)
        assert estimate.need.allocated == pytest.approx(prediction.allocated.value, rel=0.02)
        close += abs(estimate.memory.value / prediction.device.value - 1) < 0.02
    assert close >= 11  # between GPUs of one architecture, tiny workspaces may need another page of 20 MiB


@pytest.mark.medium
def test_impossible_choices_have_a_reason(classifier_table: PredictionTable) -> None:
    problems = {choice.name: choice.problem for choice in classifier_table.optimizers}
    assert problems.pop("8bit") == "SGD has no 8-bit states"
    assert not any(problems.values())


@pytest.mark.medium
def test_the_budget_limits_only_the_target(classifier_table: PredictionTable) -> None:
    first, *others = classifier_table.devices
    assert first.memory == 2**30
    assert all(device.memory == find_target(device.name).memory for device in others)


@pytest.mark.medium
def test_a_job_without_a_size_on_the_cpu() -> None:
    calls: list[tuple[int, int]] = []
    table = build_prediction_table(
        lambda: VECTORS,
        Settings(batch=4),
        find_target("cpu"),
        progress=lambda done, total: calls.append((done, total)),
    )
    assert table.sizes.values == (0,)
    assert table.sizes.problem == "the plan was made without a size"
    assert calls[-1][0] == calls[-1][1] == len(calls)
    position = TablePosition("cpu", 8, 4, 0, "fp32", "none", "given")
    prediction = predict(VECTORS, table.settings_at(position), "cpu")
    estimate = table.lookup(position)
    assert estimate.memory.value == pytest.approx(prediction.device.value, rel=0.02)
    assert estimate.seconds.value == pytest.approx(prediction.seconds.value, rel=0.02)


def test_a_job_that_fails_is_reported() -> None:
    def batch(count: int, size: object) -> object:
        raise ValueError(f"no {count} samples of {size}")

    with pytest.raises(UsageError, match="no 4 samples"):
        build_prediction_table(lambda: replace(VECTORS, batch=batch), Settings(batch=4), find_target("cpu"))
