from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import oomph
from oomph.errors import CannotFit
from oomph.planner import AllowedChanges, largest_batch, plan
from oomph.prediction import Estimate, Origin, Prediction
from oomph.settings import Settings
from oomph.units import MIB

JOB = oomph.Job(
    model=lambda: nn.Linear(4, 4),
    batch=lambda n, _: (torch.randn(n, 4), torch.randn(n, 4)),
    loss=nn.functional.mse_loss,
    optimizer=lambda model: torch.optim.SGD(model.parameters(), 0.1),
)
PREDICTION = oomph.predict(JOB, Settings(batch=1), "H200")


class LinearNeed:
    """A predict function whose need grows linearly with the micro-batch; counts its calls."""

    def __init__(self, fixed: int, per_sample: int) -> None:
        self.fixed, self.per_sample, self.calls = fixed, per_sample, 0

    def __call__(self, settings: Settings) -> Prediction:
        self.calls += 1
        return with_need(self.fixed + self.per_sample * max(settings.micro_batch_sizes))


def with_need(need: float) -> Prediction:
    return dataclasses.replace(PREDICTION, device=Estimate(need, need, need, Origin.TRACED))


def test_settings_that_fit_are_unchanged() -> None:
    requested = Settings(batch=64)
    result = plan(requested, 1000 * MIB, LinearNeed(100 * MIB, 10 * MIB))
    assert result.settings == requested
    assert result.changes == ()


def test_batch_is_split_into_even_micro_batches() -> None:
    result = plan(Settings(batch=10), 150 * MIB, LinearNeed(100 * MIB, 10 * MIB))
    assert result.settings.batch == 10
    assert result.settings.micro_batch_sizes == (5, 5)
    assert "2 micro-batches of at most 5" in result.changes[0].what
    assert result.planned_need.device.high <= 150 * MIB < result.requested_need.device.high


@settings(max_examples=100, deadline=None)
@given(st.integers(2, 200), st.integers(0, 500), st.integers(1, 50), st.integers(1, 3000))
def test_plan_fits_and_no_larger_even_split_would(batch: int, fixed: int, per_sample: int, budget: int) -> None:
    predict = LinearNeed(fixed * MIB, per_sample * MIB)
    try:
        result = plan(Settings(batch=batch), budget * MIB, predict)
    except CannotFit:
        assert fixed + per_sample > budget
        return
    assert result.planned_need.device.high <= budget * MIB
    assert sum(result.settings.micro_batch_sizes) == batch
    micro_batches = len(result.settings.micro_batch_sizes)
    if micro_batches > 1:
        larger = -(-batch // (micro_batches - 1))
        assert fixed + per_sample * larger > budget
    assert predict.calls <= 8


def test_error_says_what_one_sample_would_need() -> None:
    with pytest.raises(CannotFit, match="micro-batches of 1 need up to 110 MiB, and the budget is 105 MiB"):
        plan(Settings(batch=4), 105 * MIB, LinearNeed(100 * MIB, 10 * MIB))


def test_micro_batches_are_at_least_the_minimum() -> None:
    predict = LinearNeed(100 * MIB, 10 * MIB)
    assert plan(Settings(batch=8), 125 * MIB, predict, min_micro_batch=2).settings.micro_batch_sizes == (2, 2, 2, 2)
    with pytest.raises(CannotFit, match="micro-batches of 2"):
        plan(Settings(batch=8), 115 * MIB, predict, min_micro_batch=2)


def test_largest_batch() -> None:
    settings = largest_batch(Settings(batch=1), 500 * MIB, LinearNeed(100 * MIB, 10 * MIB))
    assert settings.batch == 40


def predict_shrinking(settings: Settings) -> Prediction:
    """A sample needs 100 MiB at 640 pixels in fp32, 40 % of that with checkpointing, half of it in amp-bf16."""
    assert isinstance(settings.size, int)
    fraction = (0.4 if settings.checkpointing == "blocks" else 1.0) * (0.5 if settings.precision == "amp-bf16" else 1.0)
    return with_need((50 + 100 * fraction * (settings.size / 640) ** 2 * max(settings.micro_batch_sizes)) * MIB)


REQUESTED = Settings(batch=8, size=640)
IMAGE_SIZES = tuple(range(608, 288, -32))


def allowing(*allowed: str) -> AllowedChanges:
    return AllowedChanges(checkpointing=True, precision="amp-bf16", image_sizes=IMAGE_SIZES, allowed=allowed)


def test_micro_batches_are_the_first_change() -> None:
    result = plan(REQUESTED, 160 * MIB, predict_shrinking, allowed_changes=allowing("precision", "size"))
    assert result.settings == dataclasses.replace(REQUESTED, micro_batch=1)
    assert len(result.changes) == 1


def test_checkpointing_is_added_if_micro_batches_alone_do_not_fit() -> None:
    result = plan(REQUESTED, 140 * MIB, predict_shrinking, allowed_changes=allowing("precision", "size"))
    assert result.settings == dataclasses.replace(REQUESTED, checkpointing="blocks", micro_batch=2)
    assert [change.cost.split(";")[0] for change in result.changes] == [
        "About a third more time",
        "BatchNorm sees micro-batches",
    ]
    assert "the requested settings may need up to 850 MiB, and the budget is 140 MiB" in result.changes[0].why


def test_results_change_only_with_permission_and_no_more_than_needed() -> None:
    with pytest.raises(CannotFit) as caught:
        plan(REQUESTED, 85 * MIB, predict_shrinking, allowed_changes=allowing())
    assert caught.value.why == "micro-batches of 1 need up to 90 MiB, and the budget is 85 MiB"
    assert caught.value.fix.startswith("--allow precision would make it fit (amp-bf16 at 640, up to 70 MiB); or")
    result = plan(REQUESTED, 85 * MIB, predict_shrinking, allowed_changes=allowing("precision"))
    assert result.settings == dataclasses.replace(
        REQUESTED, checkpointing="blocks", precision="amp-bf16", micro_batch=1
    )
    assert result.changes[1].what == "the precision is amp-bf16 instead of fp32"
    smaller = plan(REQUESTED, 85 * MIB, predict_shrinking, allowed_changes=allowing("size"))
    assert smaller.settings.size == 576  # the largest that fits: 50 + 40 * 0.81
    assert smaller.settings.precision == "fp32"
    assert "the image size is 576 instead of 640 pixels" in smaller.changes[1].what


def test_lower_precision_may_avoid_checkpointing() -> None:
    result = plan(
        REQUESTED,
        100 * MIB,
        predict_shrinking,
        allowed_changes=AllowedChanges(precision="amp-bf16", allowed=("precision",)),
    )
    assert result.settings == dataclasses.replace(REQUESTED, precision="amp-bf16", micro_batch=1)


def test_error_names_the_permission_that_would_help() -> None:
    with pytest.raises(CannotFit) as caught:
        plan(REQUESTED, 51 * MIB, predict_shrinking, allowed_changes=allowing())
    assert caught.value.fix == "use a smaller network, or a larger budget"
    with pytest.raises(CannotFit, match="--allow precision,size would make it fit"):
        plan(REQUESTED, 56 * MIB, predict_shrinking, allowed_changes=allowing())
    with pytest.raises(CannotFit, match="need up to 55 MiB"):
        plan(REQUESTED, 52 * MIB, predict_shrinking, allowed_changes=allowing("precision", "size"))
