from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oomph.errors import CannotFit, UsageError
from oomph.machine import find_target
from oomph.planner import JobPredictor, PlanRequest, largest_fitting, plan_fastest, plan_largest_batch
from oomph.planner._search import Search, Stage
from oomph.units import MIB

from .networks import H200, JOB, SETTINGS, predictor, request

NEED = 3400  # MiB beside the CUDA context that the whole batch needs in fp32, about


@pytest.mark.medium
def test_settings_that_fit_only_get_what_costs_nothing() -> None:
    plan = plan_fastest(request(10 * NEED), predictor())
    assert plan.settings == replace(SETTINGS, memory_format="channels_last", optimizer="fused")
    assert plan.planned_need.device.high <= plan.budget
    assert {change.why for change in plan.changes} == {"it is faster"}


@pytest.mark.parametrize("share", [0.9, 0.6, 0.4, 0.25])
def test_plan_fits_and_keeps_the_batch(share: float) -> None:
    plan = plan_fastest(request(share * NEED), predictor())
    assert plan.settings.batch == SETTINGS.batch
    assert plan.settings.size == SETTINGS.size
    assert plan.settings.precision == SETTINGS.precision
    assert plan.planned_need.device.high <= plan.budget < plan.requested_need.device.high
    assert predictor().predict(plan.settings).device == plan.planned_need.device


@pytest.mark.medium
def test_more_memory_is_never_slower() -> None:
    times = [
        plan_fastest(request(share * NEED), predictor()).planned_need.seconds.value for share in (0.3, 0.5, 0.8, 2)
    ]
    assert times == sorted(times, reverse=True)


def test_changes_add_up_to_the_difference() -> None:
    plan = plan_fastest(request(0.4 * NEED), predictor())
    seconds = sum(change.seconds or 0 for change in plan.changes)
    difference = plan.planned_need.seconds.value - plan.requested_need.seconds.value
    assert seconds == pytest.approx(difference, abs=1e-6)
    assert sum(change.bytes or 0 for change in plan.changes) < -0.5 * NEED * MIB


@pytest.mark.medium
def test_precision_needs_permission() -> None:
    plan = plan_fastest(request(0.6 * NEED, allow=("precision",)), predictor())
    assert plan.settings.precision == "amp-bf16"
    assert any("amp-bf16 instead of fp32" in change.what for change in plan.changes)


def test_fixed_settings_stay() -> None:
    fixed = replace(request(0.5 * NEED), fixed=frozenset({"memory_format", "optimizer", "checkpointing"}))
    plan = plan_fastest(fixed, predictor())
    assert (plan.settings.memory_format, plan.settings.optimizer, plan.settings.checkpointing) == (
        "contiguous",
        "given",
        "none",
    )
    assert len(plan.settings.micro_batch_sizes) > 1


def test_alternatives_say_why_they_lost() -> None:
    plan = plan_fastest(request(0.5 * NEED), predictor())
    whole = plan.alternatives[-1]
    assert whole.settings.micro_batch_sizes == (64,)
    assert "above the budget" in whole.why_not
    assert any("slower" in other.why_not for other in plan.alternatives)
    assert [other.memory for other in plan.alternatives] == sorted(other.memory for other in plan.alternatives)
    assert plan.settings not in [other.settings for other in plan.alternatives]
    # Nobody would choose what takes many times as long, such as micro-batches of one sample.
    assert all(other.seconds <= 4 * plan.planned_need.seconds.value for other in plan.alternatives)


@pytest.mark.large
def test_error_says_what_it_needs() -> None:
    with pytest.raises(CannotFit, match=r"micro-batches of 1 .*need up to .*, and the budget is"):
        plan_fastest(request(1), predictor())


@pytest.mark.large
def test_smaller_sizes_are_the_last_resort() -> None:
    settings, fixed = replace(SETTINGS, batch=1), frozenset({"offload"})
    with pytest.raises(CannotFit, match=r"--allow size would make it fit \(fp32 at \d\d\d"):
        plan_fastest(replace(request(115, settings), fixed=fixed), predictor())
    plan = plan_fastest(replace(request(115, settings, ("precision", "size")), fixed=fixed), predictor())
    assert isinstance(plan.settings.size, int)
    assert 128 <= plan.settings.size < 256
    assert any(f"the size is {plan.settings.size} instead of 256" in change.what for change in plan.changes)


def test_max_slowdown() -> None:
    with pytest.raises(CannotFit, match=r"times as long as without a limit, and max_slowdown is 1\.1"):
        plan_fastest(replace(request(0.05 * NEED), max_slowdown=1.1), predictor())
    assert plan_fastest(replace(request(10 * NEED), max_slowdown=1.1), predictor()).changes
    with pytest.raises(UsageError, match=r"max_slowdown is 0\.5"):
        PlanRequest(SETTINGS, H200, MIB, max_slowdown=0.5)


def test_largest_batch_fits_and_one_more_does_not() -> None:
    budget = request(4 * NEED).budget
    plan = plan_largest_batch(request(4 * NEED), predictor())
    for batch, fits in ((plan.settings.batch, True), (plan.settings.batch + 1, False)):
        prediction = predictor().predict(replace(plan.settings, batch=batch))
        assert (prediction.needed.high + H200.outside[-1] <= budget) == fits
    with pytest.raises(CannotFit, match="not even 1 sample fits"):
        plan_largest_batch(request(1), predictor())


@given(st.integers(0, 500), st.integers(1, 50), st.integers(1, 100_000), st.integers(0, 40))
def test_largest_fitting_is_exact_and_takes_few_calls(fixed: int, slope: int, budget: int, bend: int) -> None:
    calls = []

    def need(samples: int) -> float:
        calls.append(samples)
        return fixed + slope * samples + bend * (samples > 100)

    found = largest_fitting(need, budget)
    assert found == 0 or need(found) <= budget
    assert need(found + 1) > budget
    assert len(calls) < 20


def test_unknown_permission() -> None:
    with pytest.raises(UsageError, match="'speed' can't be allowed; use precision, optimizer or size"):
        PlanRequest(SETTINGS, H200, MIB, ("speed",))


def test_largest_batch_lists_what_else_changes() -> None:
    plan = plan_largest_batch(request(4 * NEED), predictor())
    assert [change.what.split(" is ")[0] for change in plan.changes] == [
        "the memory format",
        "the optimizer's update",
        "the batch",
    ]


def test_largest_fitting_starts_at_the_smallest() -> None:
    def need(samples: int) -> float:
        assert samples >= 2, "BatchNorm fails"
        return 10 * samples

    assert largest_fitting(need, 95, smallest=2) == 9
    assert largest_fitting(need, 15, smallest=2) == 0


@pytest.mark.medium
def test_on_the_cpu_micro_batches_come_before_recomputation() -> None:
    target = find_target("cpu")
    on_cpu = JobPredictor(JOB, target)
    settings = replace(SETTINGS, size=64, allocator="default")
    whole, half = (on_cpu.predict(replace(settings, micro_batch=size)).device.high for size in (None, 32))
    plan = plan_fastest(PlanRequest(settings, target, int((whole + half) / 2)), on_cpu)
    assert plan.settings.checkpointing == "none"
    assert 2 <= len(plan.settings.micro_batch_sizes) <= 3


def test_micro_batches_of_one_size() -> None:
    settings = replace(SETTINGS, batch=48)
    stage = Stage(settings, predictor().profile(settings))
    sizes = {
        equal: {len(set(candidate.settings.micro_batch_sizes)) for candidate in search.candidates(stage)}
        for equal in (False, True)
        for search in [Search(replace(request(NEED, settings), equal_parts=equal), predictor())]
    }
    assert sizes == {False: {1, 2}, True: {1}}
