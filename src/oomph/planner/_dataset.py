"""What a dataset adds to a plan: its worst batch, and a loader that fits into the host's memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..errors import CannotFit
from ..job import Job, resize_batch
from ..machine import rss_bytes
from ..prediction import Origin, Prediction
from ..units import format_size
from ._plan import DataLoaderPlan, Plan

if TYPE_CHECKING:
    from ..data import DatasetProfile

Collate = Callable[[list[Any]], Any]

_NOT_ALL_MEASURED = "no sample of the dataset is larger than those that were measured in five seconds"


@dataclass(frozen=True)
class PlannedDataset:
    """A dataset that a plan must hold for.

    Attributes:
        dataset: has `__getitem__` and `__len__`.
        profile: its measured samples.
        collate: makes a batch of samples, as a DataLoader's `collate_fn`; torch's own by default.
        host_budget: bytes of host memory for training and loading together; by default what is available now.
    """

    dataset: Any
    profile: DatasetProfile
    collate: Collate | None = None
    host_budget: int | None = None

    @classmethod
    def measured(cls, dataset: Any, batch: int, collate: Collate | None, host_budget: int | None) -> PlannedDataset:
        """Return a dataset with its profile."""
        from ..data import profile_dataset  # noqa: PLC0415  it imports NumPy

        return cls(dataset, profile_dataset(dataset, batch), collate, host_budget)

    def job(self, job: Job) -> Job:
        """Return the Job with the dataset's largest samples as its batches.

        Raises:
            UsageError: the samples can't be loaded or collated.
        """
        from ..data import worst_batch  # noqa: PLC0415  it imports NumPy

        example, samples = worst_batch(self.dataset, self.profile, self.collate)
        return replace(job, batch=lambda count, _: resize_batch(example, samples, count))

    def with_loader(self, plan: Plan) -> Plan:
        """Return the plan with the most workers, prefetched batches and pinned memory that fit beside the training.

        Raises:
            CannotFit: not even loading in the training process fits.
        """
        loader = self._loader(plan.settings.batch, plan.planned_need)
        if self.profile.exact:
            return replace(plan, loader=loader)
        assumptions = (*plan.planned_need.assumptions, _NOT_ALL_MEASURED)
        return replace(plan, loader=loader, planned_need=replace(plan.planned_need, assumptions=assumptions))

    def _loader(self, batch: int, prediction: Prediction) -> DataLoaderPlan:
        from ..data import plan_workers, read_resources  # noqa: PLC0415  it imports NumPy

        host = prediction.host
        training = int(host.value if host.origin is Origin.ASSUMED else host.high)
        resources = read_resources()
        # What is available doesn't include this process, which is the one that trains.
        memory, limited_by = resources.memory + rss_bytes(), resources.limited_by
        if self.host_budget is not None and self.host_budget < memory:
            memory, limited_by = self.host_budget, "budget"
        if training >= memory:
            raise CannotFit(
                f"the training process may need {format_size(training)} of host memory, and there are "
                f"{format_size(memory)} ({limited_by})",
                "use a machine with more RAM, or raise the limit of the container",
            )
        left = replace(
            resources,
            memory=memory - training,
            limited_by=f"{limited_by}, beside {format_size(training)} for training",
            gpu=prediction.target != "cpu",
        )
        planned = plan_workers(replace(self.profile, workload=replace(self.profile.workload, batch=batch)), left)
        return DataLoaderPlan(
            planned.workers,
            planned.prefetch,
            planned.pin_memory,
            planned.memory.total,
            planned.memory.shared,
            training,
            planned.why,
        )
