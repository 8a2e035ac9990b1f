"""`oomph.plan`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..adapters import as_job
from ..errors import UsageError, quote
from ..job import Job
from ..machine import Target, resolve_target
from ..settings import Settings
from ..units import parse_size
from ._dataset import Collate, PlannedDataset
from ._largest_batch import plan_largest_batch
from ._make_plan import plan_fastest
from ._plan import Plan
from ._predictor import JobPredictor
from ._request import GOALS, PlanRequest, read_budget


def plan(  # noqa: PLR0913  options by name
    job: Job | object,
    settings: Settings | None = None,
    target: Target | str | None = None,
    *,
    budget: int | str | None = None,
    goal: str = "fastest",
    allow: tuple[str, ...] = (),
    max_slowdown: float | None = None,
    progress: Callable[[int], object] | None = None,
    dataset: Any = None,
    collate: Collate | None = None,
    host_budget: int | str | None = None,
) -> Plan:
    """Plan how to train a Job on a GPU, which need not be present, or on this machine's CPU.

    Args:
        job: what to train: a Job, or the trainer of a framework (docs/integrations.md).
        settings: how it should be trained; of a framework's trainer, by default as it says itself. The batch and the
            size stay as they are.
        target: the device, or its name in the catalog: `"H200"`, `"RTX 3060"`, `"cpu"`. By default this machine's.
        budget: bytes of the device as nvidia-smi shows them, or a text such as "8GiB"; by default all of its memory.
        goal: "fastest", or "largest-batch" for the largest batch that runs in one piece.
        allow: what may change although it affects results: "precision", "optimizer", "size".
        max_slowdown: how many times longer a step may take than without a limit of memory.
        progress: called with the number of traces so far; each takes a second or more.
        dataset: the training set, with `__getitem__` and `__len__`. The plan holds for a batch of its largest samples,
            which replaces the Job's, and says how to load it on this machine.
        collate: the `collate_fn` of the DataLoader; torch's own by default.
        host_budget: bytes of host memory for training and loading; by default what is available. Needs a dataset.

    Raises:
        CannotFit: nothing fits; the message says what would.
        UsageError: an argument is wrong, or the Job can't be predicted.
    """
    job, settings = as_job(job, settings)
    target = resolve_target(target)
    if goal not in GOALS:
        raise UsageError(f"goal is {quote(goal)}", f"set it to {' or '.join(GOALS)}")
    request = PlanRequest(settings, target, read_budget(budget, target), allow, max_slowdown)
    make_plan = plan_fastest if goal == GOALS[0] else plan_largest_batch
    if dataset is None:
        _reject_without_dataset(collate=collate, host_budget=host_budget)
        return make_plan(request, JobPredictor(job, target, progress))
    if "size" in allow:
        raise UsageError("the dataset decides the size of its samples", "plan without the permission for size")
    host_bytes = None if host_budget is None else parse_size(host_budget)
    data = PlannedDataset.measured(dataset, settings.batch, collate, host_bytes)
    return data.with_loader(make_plan(request, JobPredictor(data.job(job), target, progress)))


def _reject_without_dataset(**options: object) -> None:
    for name, value in options.items():
        if value is not None:
            raise UsageError(f"{name} has no effect without a dataset", "pass the dataset, too")
