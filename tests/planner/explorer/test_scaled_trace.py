from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from oomph.job import Job
from oomph.machine import find_target
from oomph.planner.explorer._scaled_trace import TracedPoints, line_weights, polynomial_weights
from oomph.prediction import trace_device
from oomph.settings import Settings
from oomph.trace import StorageKind, Trace, trace_profile

from .tables import classifier_job

DEVICE = trace_device(find_target("H200"))


def traced(job: Job, samples: int, size: int) -> Trace:
    return trace_profile(job, Settings(batch=samples, size=size), DEVICE)


@pytest.fixture(scope="module")
def points() -> TracedPoints:
    job = classifier_job()
    return TracedPoints({(n, size): traced(job, n, size) for n in (1, 2, 64) for size in (32, 64, 128)})


def without_workspaces(trace: Trace) -> list[tuple[str, str, int]]:
    return [(s.op, s.module, s.size) for s in trace.storages if s.kind is not StorageKind.WORKSPACE]


@pytest.mark.parametrize(("samples", "size"), [(1, 96), (3, 48), (24, 112), (64, 64)])
def test_sizes_and_costs_are_those_of_a_trace(points: TracedPoints, samples: int, size: int) -> None:
    derived, real = points.at(samples, size), traced(classifier_job(), samples, size)
    assert points.are_alike
    assert without_workspaces(derived) == without_workspaces(real)
    assert derived.op_costs == real.op_costs


def test_one_sample_counts_only_for_itself(points: TracedPoints) -> None:
    assert {samples for samples, _ in points.weights(1, 40)} == {1}
    weights = points.weights(5, 40)
    assert {samples for samples, _ in weights} == {2, 64}
    assert weights[2, 32] + weights[2, 64] + weights[2, 128] == pytest.approx(59 / 62)
    assert sum(weights.values()) == pytest.approx(1)


def test_steps_with_other_operations_are_not_alike() -> None:
    def step(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        outputs = model(batch[0])
        return (outputs if len(outputs) < 8 else outputs.relu()).mean()

    job = Job(
        model=lambda: nn.Linear(8, 8),
        batch=lambda n, _: (torch.randn(n, 8), torch.zeros(n)),
        step=step,
        optimizer=lambda model: torch.optim.SGD(model.parameters(), 0.1),
    )
    few = {(n, 1): traced(job, n, 1) for n in (2, 4)}
    assert TracedPoints(few).are_alike
    assert not TracedPoints({**few, (64, 1): traced(job, 64, 1)}).are_alike


def test_weights_reproduce_a_polynomial() -> None:
    knots = (3, 5, 11)
    values = [2 * knot**2 - knot + 7 for knot in knots]
    weights = polynomial_weights(knots, 8)
    assert sum(weight * value for weight, value in zip(weights, values, strict=True)) == pytest.approx(2 * 64 - 8 + 7)
    assert polynomial_weights((4,), 9) == [1.0]


def test_a_line_goes_on_or_ends() -> None:
    assert line_weights((2, 4, 8), 5) == [0, 0.75, 0.25]
    assert line_weights((2, 4, 8), 12) == [0, -1, 2]
    assert line_weights((2, 4, 8), 12, ends=True) == [0, 0, 1]
    assert line_weights((2,), 7) == [1]
