"""Verdicts on a machine, most severe first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import _cores, _gpu, _host, _storage, _torch
from ._verdict import DataLoaderConfig, Severity, Verdict

if TYPE_CHECKING:
    from .._machine import Machine

__all__ = ["DataLoaderConfig", "Severity", "Verdict", "default_workers", "diagnose_machine"]

_CHECKS = (
    _gpu.driver_failed,
    _gpu.gpu_lost,
    _torch.torch_missing,
    _torch.torch_unfit,
    _torch.gpu_not_in_container,
    _gpu.gpu_memory_used,
    _gpu.gpu_throttled,
    _gpu.gpu_partitioned,
    _torch.torchvision_broken,
    _host.commit_limit,
    _host.address_space_limit,
    _host.data_limit,
    _host.past_oom_kills,
    _host.swapping,
    _host.memory_pressure,
    _host.no_swap,
    _host.cgroup_limit,
    _host.memory_unknown,
    _storage.shm_small,
    _storage.folder_readonly,
    _storage.disk_full,
    _cores.few_cores,
)
_USUAL_WORKERS = 8  # the default of most training scripts


def diagnose_machine(machine: Machine, loader: DataLoaderConfig | None = None) -> tuple[Verdict, ...]:
    """Return the problems of a machine for a data-loading setup; an empty result means it is healthy."""
    config = loader or DataLoaderConfig(workers=default_workers(machine))
    verdicts = [verdict for check in _CHECKS for verdict in check(machine, config)]
    order = list(Severity)
    return tuple(sorted(verdicts, key=lambda verdict: order.index(verdict.severity)))


def default_workers(machine: Machine) -> int:
    """Return the number of loader workers that most training scripts start: eight, or one per core."""
    return min(_USUAL_WORKERS, max(int(machine.cores.usable.known or 1), 1))
