"""What can be done about a verdict, by where the process runs; never more of a thing than the machine has."""

from __future__ import annotations

import math
import shlex

from ...units import GIB
from .._budget import CGROUP_LIMIT, CGROUP_THROTTLE, Bound
from .._machine import Machine
from .._surroundings import EnvironmentKind

_CORES = 8  # what a loader with the usual number of workers can use


def memory_bounds(machine: Machine) -> tuple[Bound, ...]:
    """What bounds memory for a process and its workers together, the smallest first; `ulimit` is for each alone."""
    shared = {"RAM", CGROUP_LIMIT, CGROUP_THROTTLE}
    return tuple(sorted((one for one in machine.budget.bounds if one.name in shared), key=lambda one: one.limit))


def with_rights(machine: Machine, *steps: str) -> tuple[str, ...]:
    """Steps that need an administrator, who in a container or a Slurm job is somebody else."""
    if machine.surroundings.inside(EnvironmentKind.SLURM):
        return ("Ask the administrators of the cluster for this:", *_without_sudo(steps))
    if machine.surroundings.inside(EnvironmentKind.CONTAINER):
        return ("On the host, or by whoever runs it:", *_without_sudo(steps))
    return steps


def _without_sudo(steps: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(step.replace("$ sudo ", "$ ") for step in steps)


def raise_limit(machine: Machine, bound: Bound) -> tuple[str, ...]:
    """How to get more memory than a control group allows."""
    more = _whole_gib(machine, 2 * bound.limit)
    if more is None or more * GIB <= bound.limit:
        return ("That is nearly all there is: take a machine with more RAM.",)
    if machine.surroundings.inside(EnvironmentKind.SLURM):
        return ("Ask for more:", f"$ sbatch --mem={more}G …")
    if bound.name == CGROUP_THROTTLE:
        return (f"Raise it, or have it raised ({bound.source}).",)
    if machine.surroundings.inside(EnvironmentKind.CONTAINER):
        return ("Start the container with more:", f"$ docker run --memory={more}g …")
    return ("Raise the limit of the service or session that started this process.",)


def _whole_gib(machine: Machine, size: int) -> int | None:
    """A size in whole GiB, but no more than there is RAM; None where RAM isn't known."""
    ram = machine.memory.ram_total.known
    return None if ram is None else min(math.ceil(size / GIB), ram // GIB)


def add_swap(machine: Machine, added: int) -> tuple[str, ...]:
    """How to get this much more swap, or page file."""
    gib, has = math.ceil(added / GIB), machine.memory.swap_total.known or 0
    whole = math.ceil((has + added) / GIB)
    if machine.surroundings.system == "windows":
        return (
            "Press Win+R, run SystemPropertiesPerformance.exe, then Advanced, Virtual memory, Change.",
            'Clear "Automatically manage" and choose "Custom size":',
            f"enter {whole * 1024} MB as initial and maximum size, and restart Windows.",
        )
    if machine.surroundings.inside(EnvironmentKind.WSL):
        return (
            f"On Windows put [wsl2] and swap={whole}GB into %UserProfile%\\.wslconfig, then:",
            "$ wsl --shutdown",
        )
    if machine.surroundings.inside(EnvironmentKind.SLURM):
        return ("Swap belongs to the node: ask its administrators, or ask Slurm for more memory.",)
    if machine.surroundings.inside(EnvironmentKind.CONTAINER):
        return (
            "Swap belongs to the host: add it there, and let the container use it:",
            "$ docker run --memory-swap=-1 …",
        )
    file = "/swapfile2" if has else "/swapfile"
    return (
        f"$ sudo fallocate -l {gib}G {file}",
        f"$ sudo chmod 600 {file}",
        f"$ sudo mkswap {file}",
        f"$ sudo swapon {file}",
    )


def more_shm(machine: Machine, needed: int) -> tuple[str, ...]:
    """How to get a larger `/dev/shm`; it is memory, so the memory there is bounds it."""
    most = min((bound.limit // GIB for bound in memory_bounds(machine)), default=None)
    gib = math.ceil(2 * needed / GIB)
    if most is not None and gib > most:
        gib = math.ceil(needed / GIB)
    if most is not None and gib > most:
        return ("That is more than the memory there is: make batches smaller",)
    if machine.surroundings.inside(EnvironmentKind.CONTAINER):
        return (
            f"$ docker run --shm-size={gib}g …",
            'on Kubernetes, mount an emptyDir with "medium: Memory" at /dev/shm',
        )
    return with_rights(machine, f"$ sudo mount -o remount,size={gib}G /dev/shm")


def more_cores(machine: Machine, wanted: int = _CORES) -> tuple[str, ...]:
    """How to get more cores, by what takes them away: a quota, the affinity, or the machine itself."""
    online, allowed, usable = (
        fact.known for fact in (machine.cores.online, machine.cores.allowed, machine.cores.usable)
    )
    if online is None or usable is None or usable >= online:
        return ("Take a machine with more cores.",)
    number = min(wanted, online)
    if machine.surroundings.inside(EnvironmentKind.SLURM):
        return ("Ask for more:", f"$ sbatch --cpus-per-task={number} …")
    if allowed is not None and usable >= allowed:
        return (f"Its affinity binds this process to {allowed} of {online} cores: start it without taskset or cpuset.",)
    if machine.surroundings.inside(EnvironmentKind.CONTAINER):
        return ("Start the container with more:", f"$ docker run --cpus={number} …")
    return (
        f"Raise the CPU quota of the service or session that started this process ({machine.cores.usable.source}).",
    )


def see_what_fills(machine: Machine, path: str) -> tuple[str, ...]:
    """How to see what a disk is full of."""
    if machine.surroundings.system == "windows":
        return ("Windows' Settings, System, Storage shows what fills it.",)
    depth = "-d 2" if machine.surroundings.system == "macos" else "--max-depth=2"
    return ("See what fills it:", f"$ du -xh {depth} {shlex.quote(path)} | sort -h | tail")


def count(number: float, thing: str) -> str:
    """A number of things: "1 core", "2.5 cores"."""
    return f"{number:.12g} {thing}{'' if number == 1 else 's'}"
