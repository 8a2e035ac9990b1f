from __future__ import annotations

from dataclasses import replace

import pytest

from oomph.machine import find_target
from oomph.planner import GpuOption, next_smaller, plan_fastest, which_gpus
from oomph.planner._predictor import JobPredictor
from oomph.planner._request import PlanRequest
from oomph.settings import Settings
from oomph.units import GIB

from .networks import JOB

# One sample needs about 5 GiB, so that small GPUs are too small.
LARGE = Settings(batch=32, size=2048)

pytestmark = pytest.mark.large


@pytest.fixture(scope="module")
def options() -> tuple[GpuOption, ...]:
    steps = []
    found = which_gpus(JOB, LARGE, progress=lambda done, total: steps.append((done, total)))
    assert steps[0] == (0, len(steps))
    return found


def test_small_gpus_do_not_work_and_large_ones_do(options: tuple[GpuOption, ...]) -> None:
    works = [option for option in options if option.settings is not None]
    assert [option.memory for option in options] == sorted(option.memory for option in options)
    assert options[0].settings is None
    assert options[0].need > options[0].memory
    assert options[-1] in works
    assert all(option.need <= option.memory and (option.seconds or 0) > 0 for option in works)
    assert any("p4d.24xlarge" in option.machines for option in works)
    assert min(option.memory for option in works) < 8 * GIB


def test_estimates_agree_with_a_plan(options: tuple[GpuOption, ...]) -> None:
    """The smallest GPU that works does so with a full trace, too."""
    smallest = next(option for option in options if option.settings is not None)
    target = find_target(smallest.gpu)
    plan = plan_fastest(PlanRequest(LARGE, target, target.memory), JobPredictor(JOB, target))
    assert plan.planned_need.device.high <= smallest.memory


def test_advice_names_the_next_smaller_gpu(options: tuple[GpuOption, ...]) -> None:
    smallest = next(option for option in options if option.settings is not None)
    advice = next_smaller(JOB, LARGE, options)
    too_small = [option for option in options if option.memory < smallest.memory]
    assert advice.startswith((f"{too_small[-1].gpu} (", f"On {too_small[-1].gpu} ("))
    everything = tuple(replace(option, settings=LARGE) for option in options)
    assert next_smaller(JOB, LARGE, everything) == "It runs on the smallest GPU of the catalog."
