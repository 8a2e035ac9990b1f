from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

import oomph
from oomph.machine import find_target
from oomph.planner import JobPredictor, StepProfile, step_profile
from oomph.prediction import trace_device
from oomph.settings import Settings
from oomph.trace import Phase, trace_profile

from .networks import H200, JOB, SETTINGS, predictor

FUSED = replace(SETTINGS, optimizer="fused")


@pytest.fixture(scope="module")
def profile() -> StepProfile:
    return predictor().profile(FUSED)


@pytest.mark.parametrize("checkpointed", [(), ("1.0",), ("1", "3.1")])
@pytest.mark.parametrize("micro_batch", [64, 24])
def test_memory_is_close_to_a_full_trace(profile: StepProfile, checkpointed: tuple[str, ...], micro_batch: int) -> None:
    settings = replace(
        FUSED, micro_batch=micro_batch if micro_batch < 64 else None, checkpointing=checkpointed or "none"
    )
    traced = predictor().predict(settings).allocated.value
    assert profile.memory(micro_batch, checkpointed) == pytest.approx(traced, rel=0.003)


def test_checkpointing_saves_memory_and_costs_time(profile: StepProfile) -> None:
    assert profile.memory(64, ("1.0",)) < 0.9 * profile.memory(64, ())
    assert profile.seconds(64, ("1",)) > profile.seconds(64, ("1.0",)) > profile.seconds(64, ())


def test_micro_batches_of_a_small_network_cost_launches(profile: StepProfile) -> None:
    assert profile.seconds(1, ()) > 4 * profile.seconds(64, ())


def test_on_the_cpu_launches_cost_nothing() -> None:
    on_cpu = JobPredictor(JOB, find_target("cpu")).profile(replace(SETTINGS, allocator="default"))
    assert on_cpu.seconds(1, ()) < 1.1 * on_cpu.seconds(64, ())


class InPlace(nn.Module):
    """Changes its input, so that it can't be recomputed."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.exp(x.mul_(2))


def test_module_that_writes_to_its_inputs_is_not_recomputed() -> None:
    def build() -> nn.Module:
        return nn.Sequential(nn.Linear(64, 64), InPlace(), nn.Sequential(nn.Linear(64, 64), nn.GELU()))

    job = oomph.Job(
        model=build,
        batch=lambda samples, _: (torch.randn(samples, 64), torch.randn(samples, 64)),
        loss=nn.functional.mse_loss,
        optimizer=lambda model: torch.optim.SGD(model.parameters(), 0.1),
    )
    paths = JobPredictor(job, H200).profile(Settings(batch=512)).modules
    assert "1" not in paths
    assert "2" in paths


def test_batch_norm_needs_two_samples(profile: StepProfile) -> None:
    job = oomph.Job(
        model=lambda: nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)),
        batch=lambda samples, _: (torch.randn(samples, 8), torch.randn(samples, 8)),
        loss=nn.functional.mse_loss,
        optimizer=lambda model: torch.optim.SGD(model.parameters(), 0.1),
    )
    assert JobPredictor(job, H200).profile(Settings(batch=4)).min_micro_batch == 2
    assert profile.min_micro_batch == 1


def test_batch_of_several_passes(profile: StepProfile) -> None:
    whole = profile.repeated(4)
    assert whole.settings.batch == 256
    # In four passes, a step needs what one of them needs, and gradients stay.
    assert whole.memory(64, ()) == pytest.approx(profile.memory(64, ()) + profile.gradients, rel=0.001)
    assert whole.memory(64, ("1",)) == pytest.approx(profile.memory(64, ("1",)) + profile.gradients, rel=0.001)
    assert 3.5 * profile.seconds(64, ()) < whole.seconds(64, ()) < 4 * profile.seconds(64, ())


def test_pass_gets_its_update_from_whole_steps() -> None:
    trace = trace_profile(JOB, FUSED, trace_device(H200))
    costs = tuple(cost for cost in trace.op_costs if cost.phase is not Phase.OPTIMIZER)
    profile = step_profile(trace, FUSED, H200)
    one_pass = replace(profile, costs=costs, states=0, launching_update=0.0)
    complete = one_pass.with_update(trace)
    assert complete.states == profile.states > 0
    assert complete.seconds(64, ()) == pytest.approx(profile.seconds(64, ()))
    assert one_pass.seconds(64, ()) < profile.seconds(64, ())
