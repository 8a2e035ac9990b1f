"""Fixes that depend on the environment of the process; they never suggest more of a resource than the machine has."""

from __future__ import annotations

import math
import shlex

from ...units import GIB
from .._budget import CGROUP_LIMIT, CGROUP_THROTTLE, Bound
from .._machine import Machine
from ..host import EnvironmentKind

_USUAL_CORES = 8  # a loader with the usual number of workers can use them


def shared_bounds(machine: Machine) -> tuple[Bound, ...]:
    """Return the limits on a process and its workers together, the smallest first; a `ulimit` is per process."""
    shared = {"RAM", CGROUP_LIMIT, CGROUP_THROTTLE}
    return tuple(sorted((bound for bound in machine.budget.bounds if bound.name in shared), key=lambda b: b.limit))


def as_administrator(machine: Machine, *steps: str) -> tuple[str, ...]:
    """Return steps that need root, which users of a container or a Slurm job don't have."""
    if machine.environment.inside(EnvironmentKind.SLURM):
        return ("Ask the administrators of the cluster to run:", *_without_sudo(steps))
    if machine.environment.inside(EnvironmentKind.CONTAINER):
        return ("Run on the host, or ask its administrator to:", *_without_sudo(steps))
    return steps


def _without_sudo(steps: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(step.replace("$ sudo ", "$ ") for step in steps)


def raise_limit(machine: Machine, bound: Bound) -> tuple[str, ...]:
    """Return the steps to raise the memory limit of a cgroup."""
    size = _whole_gib(machine, 2 * bound.limit)
    if size is None or size * GIB <= bound.limit:
        return ("The limit is nearly all of the RAM: use a machine with more RAM.",)
    if machine.environment.inside(EnvironmentKind.SLURM):
        return ("Request more memory:", f"$ sbatch --mem={size}G …")
    if bound.name == CGROUP_THROTTLE:
        return (f"Raise the throttle limit ({bound.source}), or ask an administrator to.",)
    if machine.environment.inside(EnvironmentKind.CONTAINER):
        return ("Start the container with more memory:", f"$ docker run --memory={size}g …")
    return ("Raise the limit of the service or session that started this process.",)


def _whole_gib(machine: Machine, size: int) -> int | None:
    """Return a size in whole GiB, at most the RAM; None if the RAM is unknown."""
    ram = machine.memory.ram_total.known
    return None if ram is None else min(math.ceil(size / GIB), ram // GIB)


def add_swap(machine: Machine, size: int) -> tuple[str, ...]:
    """Return the steps to add swap or page file of a size."""
    gib, existing = math.ceil(size / GIB), machine.memory.swap_total.known or 0
    total_gib = math.ceil((existing + size) / GIB)
    if machine.environment.system == "windows":
        return (
            "Press Win+R, run SystemPropertiesPerformance.exe, then Advanced, Virtual memory, Change.",
            'Clear "Automatically manage" and choose "Custom size":',
            f"enter {total_gib * 1024} MB as initial and maximum size, and restart Windows.",
        )
    if machine.environment.inside(EnvironmentKind.WSL):
        return (
            f"On Windows, put [wsl2] and swap={total_gib}GB into %UserProfile%\\.wslconfig, then:",
            "$ wsl --shutdown",
        )
    if machine.environment.inside(EnvironmentKind.SLURM):
        return ("Swap belongs to the node: ask its administrators, or request more memory from Slurm.",)
    if machine.environment.inside(EnvironmentKind.CONTAINER):
        return (
            "Swap belongs to the host: add it there, and let the container use it:",
            "$ docker run --memory-swap=-1 …",
        )
    file = "/swapfile2" if existing else "/swapfile"
    return (
        f"$ sudo fallocate -l {gib}G {file}",
        f"$ sudo chmod 600 {file}",
        f"$ sudo mkswap {file}",
        f"$ sudo swapon {file}",
    )


def enlarge_shm(machine: Machine, needed: int) -> tuple[str, ...]:
    """Return the steps to enlarge `/dev/shm`, which is limited by the memory of the machine."""
    max_gib = min((bound.limit // GIB for bound in shared_bounds(machine)), default=None)
    gib = math.ceil(2 * needed / GIB)
    if max_gib is not None and gib > max_gib:
        gib = math.ceil(needed / GIB)
    if max_gib is not None and gib > max_gib:
        return ("That is more than the memory of this machine: use smaller batches.",)
    if machine.environment.inside(EnvironmentKind.CONTAINER):
        return (
            f"$ docker run --shm-size={gib}g …",
            'On Kubernetes, mount an emptyDir with "medium: Memory" at /dev/shm.',
        )
    return as_administrator(machine, f"$ sudo mount -o remount,size={gib}G /dev/shm")


def add_cores(machine: Machine, wanted: int = _USUAL_CORES) -> tuple[str, ...]:
    """Return the steps to get more cores, depending on whether a quota, the affinity or the machine limits them."""
    online, allowed, usable = (
        fact.known for fact in (machine.cores.online, machine.cores.allowed, machine.cores.usable)
    )
    if online is None or usable is None or usable >= online:
        return ("Use a machine with more cores.",)
    number = min(wanted, online)
    if machine.environment.inside(EnvironmentKind.SLURM):
        return ("Request more cores:", f"$ sbatch --cpus-per-task={number} …")
    if allowed is not None and usable >= allowed:
        return (
            f"The CPU affinity allows this process {allowed} of {online} cores: start it without taskset or cpuset.",
        )
    if machine.environment.inside(EnvironmentKind.CONTAINER):
        return ("Start the container with more cores:", f"$ docker run --cpus={number} …")
    return (
        f"Raise the CPU quota of the service or session that started this process ({machine.cores.usable.source}).",
    )


def show_disk_usage(machine: Machine, path: str) -> tuple[str, ...]:
    """Return the steps to list what fills a disk."""
    if machine.environment.system == "windows":
        return ("See what fills it in Settings, System, Storage.",)
    depth = "-d 2" if machine.environment.system == "macos" else "--max-depth=2"
    return ("See what fills it:", f"$ du -xh {depth} {shlex.quote(path)} | sort -h | tail")
