"""What a dataset adds to a plan: its worst batch, and a loader that fits into the host's memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ..errors import CannotFit
from ..job import Job, resize_batch
from ..machine import rss_bytes
from ..prediction import Origin, Prediction
from ..units import format_size
from ._plan import DataLoaderPlan

Collate = Callable[[list[Any]], Any]


@dataclass(frozen=True)
class PlannedDataset:
    """A map-style dataset that a plan must hold for.

    Attributes:
        dataset: has `__getitem__` and `__len__`.
        collate: makes a batch of samples, as a DataLoader's `collate_fn`; torch's own by default.
        host_budget: bytes of host memory for training and loading together; by default what is available now.
    """

    dataset: Any
    collate: Collate | None = None
    host_budget: int | None = None

    def job(self, job: Job, batch: int) -> Job:
        """Return the Job with the dataset's largest samples as its batches.

        Raises:
            UsageError: the samples can't be loaded or collated.
        """
        from ..data import worst_batch  # noqa: PLC0415  it imports NumPy

        example, samples = worst_batch(self.dataset, batch, self.collate)
        return replace(job, batch=lambda count, _: resize_batch(example, samples, count))

    def loader(self, batch: int, prediction: Prediction) -> DataLoaderPlan:
        """Return the most workers, prefetched batches and pinned memory that fit beside the training process.

        Raises:
            CannotFit: not even loading in the training process fits.
        """
        from ..data import plan_workers, profile_dataset, read_resources  # noqa: PLC0415  it imports NumPy

        host = prediction.host
        training = int(host.value if host.origin is Origin.ASSUMED else host.high)
        resources = read_resources()
        # This process is counted already in what is available.
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
        planned = plan_workers(profile_dataset(self.dataset, batch), left)
        return DataLoaderPlan(
            planned.workers,
            planned.prefetch,
            planned.pin_memory,
            planned.memory.total,
            planned.memory.shared,
            training,
            planned.why,
        )
