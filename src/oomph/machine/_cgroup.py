"""The memory and CPU limits of control groups, version 1 and 2, from the process's own group up to the top.

Any level may be the tightest, so every level that can be seen is read. A container often sees its own group as the
top; version 1 still tells what the hidden parents allow, in `hierarchical_memory_limit`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TypeVar

from ._fact import NO_LIMIT, Fact, Limit, NoLimit, Unknown, unknown
from ._source import Source

T = TypeVar("T")

# Version 1 writes "no limit" as the largest whole number of pages that fits 63 bits.
_V1_NO_LIMIT = 2**62


@dataclass(frozen=True)
class MemoryGroup:
    """One level of the memory controller.

    Attributes:
        path: the group's folder on the machine.
        version: of control groups, 1 or 2.
        maximum: the kernel kills beyond it.
        high: the kernel slows the group down beyond it.
        swap: how much swap the group may use (version 1: memory and swap together).
        current: what the group uses, page cache included.
        reclaimable: the part of `current` that is page cache the kernel can drop.
        oom_kills: how many processes of the group the kernel has killed for memory.
    """

    path: str
    version: int
    maximum: Limit
    high: Limit
    swap: Limit
    current: Fact[int]
    reclaimable: Fact[int]
    oom_kills: Fact[int]


@dataclass(frozen=True)
class CpuGroup:
    """One level of the CPU controller: `quota` is how many cores' worth of time the group may use."""

    path: str
    version: int
    quota: Fact[float | NoLimit]


@dataclass(frozen=True)
class Cgroups:
    """All levels that apply to this process, its own group first."""

    memory: tuple[MemoryGroup, ...]
    cpu: tuple[CpuGroup, ...]


def read_cgroups(source: Source) -> Cgroups:
    """Read every level of the memory and CPU controllers."""
    mounts = _mounts(source)
    groups = _groups(source)
    memory_folders, memory_version = _folders(source, mounts, groups, "memory")
    cpu_folders, cpu_version = _folders(source, mounts, groups, "cpu")
    read_memory = _memory_v1 if memory_version == 1 else _memory_v2
    read_cpu = _cpu_v1 if cpu_version == 1 else _cpu_v2
    memory = tuple(read_memory(source, folder) for folder in memory_folders)
    return Cgroups(
        memory=(*memory, *_hidden_parents(source, memory)),
        cpu=tuple(read_cpu(source, folder) for folder in cpu_folders),
    )


def _groups(source: Source) -> dict[str, str]:
    """Controller (or "" for version 2) to the path of this process's group."""
    text = source.text("/proc/self/cgroup")
    if isinstance(text, Unknown):
        return {}
    found: dict[str, str] = {}
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        found |= dict.fromkeys(controllers.split(","), path)
    return found


def _mounts(source: Source) -> dict[str, tuple[str, str]]:
    """Controller (or "" for version 2) to the group shown at the top of its mount, and the mount's folder."""
    text = source.text("/proc/self/mountinfo")
    if isinstance(text, Unknown):
        return {}
    found: dict[str, tuple[str, str]] = {}
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        root, folder = left.split()[3:5]
        kind, _, options = right.split(" ", 2)
        if kind == "cgroup2":
            found[""] = (root, folder)
        elif kind == "cgroup":
            found |= dict.fromkeys(options.split()[-1].split(","), (root, folder))
    return found


def _folders(
    source: Source, mounts: dict[str, tuple[str, str]], groups: dict[str, str], controller: str
) -> tuple[list[str], int]:
    """The folders of this process's group and of its parents, as far up as can be seen, and the version."""
    version = 1 if controller in groups and controller in mounts else 2
    key = controller if version == 1 else ""
    if key not in mounts or key not in groups:
        return [], version
    top, mount = mounts[key]
    group = groups[key]
    # A path outside of the mount's top ("/../x", or a host path seen from inside a container) is not visible here:
    # what is mounted is then the group that applies.
    inside = PurePosixPath(group).relative_to(top) if _is_below(group, top) else PurePosixPath()
    leaf = PurePosixPath(mount) / inside
    if not source.path(str(leaf)).is_dir():
        leaf = PurePosixPath(mount)
    folders = [leaf, *leaf.parents]
    return [str(folder) for folder in folders[: folders.index(PurePosixPath(mount)) + 1]], version


def _is_below(group: str, top: str) -> bool:
    return ".." not in group.split("/") and PurePosixPath(group).is_relative_to(top)


def _memory_v2(source: Source, folder: str) -> MemoryGroup:
    return MemoryGroup(
        path=folder,
        version=2,
        maximum=_read(source, f"{folder}/memory.max", _limit),
        high=_read(source, f"{folder}/memory.high", _limit),
        swap=_read(source, f"{folder}/memory.swap.max", _limit),
        current=_read(source, f"{folder}/memory.current", int),
        reclaimable=_field(source, f"{folder}/memory.stat", "inactive_file"),
        oom_kills=_field(source, f"{folder}/memory.events", "oom_kill"),
    )


def _memory_v1(source: Source, folder: str) -> MemoryGroup:
    return MemoryGroup(
        path=folder,
        version=1,
        maximum=_read(source, f"{folder}/memory.limit_in_bytes", _limit),
        high=unknown("version 1 has no such limit", f"{folder}/memory.high"),
        swap=_read(source, f"{folder}/memory.memsw.limit_in_bytes", _limit),
        current=_read(source, f"{folder}/memory.usage_in_bytes", int),
        reclaimable=_field(source, f"{folder}/memory.stat", "total_inactive_file"),
        oom_kills=_field(source, f"{folder}/memory.oom_control", "oom_kill"),
    )


def _hidden_parents(source: Source, levels: tuple[MemoryGroup, ...]) -> tuple[MemoryGroup, ...]:
    """The limit that parents out of sight put on a version 1 group, as one more level."""
    if not levels or levels[0].version != 1:
        return ()
    stat = f"{levels[0].path}/memory.stat"
    inherited = _field(source, stat, "hierarchical_memory_limit").map(lambda size: _limit(str(size)))
    seen = [level.maximum.known for level in levels]
    if inherited.known is None or inherited.known in (*seen, NO_LIMIT):
        return ()
    nothing = "a parent that can't be seen from here"
    return (
        MemoryGroup(
            path=f"{levels[-1].path}/..",
            version=1,
            maximum=inherited,
            high=unknown(nothing, stat),
            swap=unknown(nothing, stat),
            current=unknown(nothing, stat),
            reclaimable=unknown(nothing, stat),
            oom_kills=unknown(nothing, stat),
        ),
    )


def _cpu_v2(source: Source, folder: str) -> CpuGroup:
    return CpuGroup(folder, 2, _read(source, f"{folder}/cpu.max", _quota))


def _cpu_v1(source: Source, folder: str) -> CpuGroup:
    quota, period = source.text(f"{folder}/cpu.cfs_quota_us"), source.text(f"{folder}/cpu.cfs_period_us")
    path = f"{folder}/cpu.cfs_quota_us"
    if isinstance(quota, Unknown) or isinstance(period, Unknown):
        return CpuGroup(folder, 1, unknown("there is no such file", path))
    return CpuGroup(folder, 1, Fact(_quota(f"{quota.strip()} {period}"), path))


def _limit(text: str) -> int | NoLimit:
    value = text.strip()
    return NO_LIMIT if value == "max" or int(value) >= _V1_NO_LIMIT else int(value)


def _quota(text: str) -> float | NoLimit:
    quota, period = text.split()
    # Version 1 writes -1 and version 2 "max" where there is no quota.
    return NO_LIMIT if quota in {"max", "-1"} else int(quota) / int(period)


def _field(source: Source, path: str, key: str) -> Fact[int]:
    """One number out of a file of "key value" lines."""

    def pick(text: str) -> int | Unknown:
        match = re.search(rf"^{key} (\d+)$", text, re.MULTILINE)
        return int(match[1]) if match else Unknown("this kernel doesn't say")

    fact = _read(source, path, pick)
    return Fact(fact.value, f"{path} {key}")


def _read(source: Source, path: str, parse: Callable[[str], T | Unknown]) -> Fact[T]:
    text = source.text(path)
    return Fact(text if isinstance(text, Unknown) else parse(text), path)
