from __future__ import annotations

import torch
from torch import Tensor, nn

from oomph.job import Job
from oomph.machine import find_target
from oomph.prediction import trace_device
from oomph.settings import Settings
from oomph.trace import Phase, Trace, trace_profile


class Doubled(nn.Module):
    """Changes its input in place."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mul_(2)


class Net(nn.Module):
    """Calls a module twice, once by keyword."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(32, 64)
        self.shared = nn.Linear(64, 64)
        self.doubled = Doubled()

    def forward(self, x: Tensor) -> Tensor:
        return self.doubled(self.shared(input=torch.relu(self.shared(self.first(x)))))


def profile_trace() -> Trace:
    job = Job(
        model=Net,
        batch=lambda samples, _: (torch.randn(samples, 32), torch.randn(samples, 64)),
        loss=nn.functional.mse_loss,
        optimizer=lambda model: torch.optim.SGD(model.parameters(), 0.1),
    )
    return trace_profile(job, Settings(batch=16), trace_device(find_target("H200")))


def test_calls_name_their_storages() -> None:
    trace = profile_trace()
    assert [call.path for call in trace.calls] == ["first", "shared", "shared", "doubled", ""]
    first, shared, again, doubled, whole = trace.calls
    assert [trace.storages[index].size for index in first.inputs] == [16 * 32 * 4]
    assert first.outputs == shared.inputs
    assert again.inputs != shared.outputs  # ReLU is between them
    assert again.outputs == doubled.inputs == doubled.outputs == whole.outputs
    assert [call.writes_inputs for call in trace.calls] == [False, False, False, True, False]


def test_costs_name_module_and_phase() -> None:
    costs = profile_trace().op_costs
    assert {cost.module for cost in costs if cost.op == "addmm"} == {"first", "shared"}
    assert {cost.phase for cost in costs} == {Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER}
    assert any(cost.phase is Phase.BACKWARD and cost.module == "first" for cost in costs)
    assert not any(cost.op == "device" for cost in costs)


def test_a_profile_is_one_step_without_validation() -> None:
    trace = profile_trace()
    assert {step for _, step, _ in trace.phase_starts} == {0}
    assert trace.training_events == len(trace.events)
