"""Number of workers for a torch DataLoader over any dataset, within the memory of the host."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..errors import CannotFit
from ..units import format_size
from ._loader_memory import LoaderMemory, LoaderWorkload, predict_loader_memory
from ._profile import DatasetProfile
from ._resources import HostResources, read_resources

_MAX_WORKERS = 8
_DEFAULT_PREFETCH = 2


@dataclass(frozen=True)
class WorkerPlan:
    """Settings of a DataLoader for a dataset on this machine.

    Attributes:
        workers: `num_workers`.
        prefetch: `prefetch_factor`; None without workers.
        pin_memory: `pin_memory`.
        memory: predicted host memory.
        why: the reason for the number of workers.
    """

    workers: int
    prefetch: int | None
    pin_memory: bool
    memory: LoaderMemory
    why: str

    @property
    def dataloader_kwargs(self) -> dict[str, int | bool | None]:
        """Keyword arguments for `torch.utils.data.DataLoader`."""
        return {"num_workers": self.workers, "prefetch_factor": self.prefetch, "pin_memory": self.pin_memory}


def plan_workers(profile: DatasetProfile, resources: HostResources | None = None) -> WorkerPlan:
    """Choose the most workers, prefetched batches and pinned memory that fit the memory and the cores.

    Args:
        profile: result of `profile_dataset`; its `workload` holds the start method and the memory for decoding.
        resources: what may be used; what is available on this machine by default.

    Raises:
        CannotFit: a single batch does not fit.
    """
    resources = resources or read_resources()
    max_workers = min(resources.cores, _MAX_WORKERS)
    excess = ""
    for workers in range(max_workers, -1, -1):
        for prefetch in (_DEFAULT_PREFETCH, 1) if workers else (_DEFAULT_PREFETCH,):
            for pin_memory in (True, False) if resources.gpu else (False,):
                workload = replace(
                    profile.workload, workers=workers, prefetch=prefetch, pin_memory=pin_memory, budget=None
                )
                excess = _excess(workload, resources)
                if not excess:
                    memory = predict_loader_memory(workload)
                    why = _why(workload, max_workers, resources)
                    return WorkerPlan(workers, prefetch if workers else None, pin_memory, memory, why)
    raise CannotFit(
        f"a batch of {format_size(profile.batch_bytes)} does not fit: loading it {excess}", "use smaller batches"
    )


def _excess(workload: LoaderWorkload, resources: HostResources) -> str:
    """Describe the limit that a workload exceeds; empty if it fits."""
    memory = predict_loader_memory(workload)
    if memory.total - workload.index_bytes > resources.memory:
        available = format_size(resources.memory)
        return f"needs {format_size(memory.total)}, and {available} are available ({resources.limited_by})"
    if memory.shared > resources.shm:
        return f"needs {format_size(memory.shared)} of /dev/shm, which has {format_size(resources.shm)}"
    return ""


def _why(workload: LoaderWorkload, max_workers: int, resources: HostResources) -> str:
    if workload.workers == max_workers:
        return f"{resources.cores} usable cores"
    more = replace(workload, workers=workload.workers + 1, prefetch=1, pin_memory=False)
    return f"loading with {more.workers} workers {_excess(more, resources) or 'needs more pinned memory than fits'}"
