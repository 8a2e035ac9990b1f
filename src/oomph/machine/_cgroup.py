"""The memory and CPU limits of control groups, version 1 and 2, from the process's own group up to the top.

Any level may be the tightest, so every level that can be seen is read. A container often sees its own group as the
top; version 1 still tells what the hidden parents allow, in `hierarchical_memory_limit`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import PurePosixPath

from ._fact import NO_LIMIT, Fact, Limit, NoLimit, Unknown, unknown
from ._mounts import Mount, read_mounts
from ._source import Source

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


def read_cgroups(source: Source, process: int | str = "self") -> Cgroups:
    """Read every level of the memory and CPU controllers around a process."""
    mounts = _mounts(source)
    groups = _groups(source, process)
    memory_folders, memory_version = _folders(source, mounts, groups, "memory")
    cpu_folders, cpu_version = _folders(source, mounts, groups, "cpu")
    read_memory = _memory_v1 if memory_version == 1 else _memory_v2
    read_cpu = _cpu_v1 if cpu_version == 1 else _cpu_v2
    memory = tuple(read_memory(source, folder) for folder in memory_folders)
    return Cgroups(
        memory=(*memory, *_hidden_parents(source, memory)),
        cpu=tuple(read_cpu(source, folder) for folder in cpu_folders),
    )


def read_again(source: Source, group: MemoryGroup) -> MemoryGroup:
    """The same level of the memory controller, now."""
    return (_memory_v1 if group.version == 1 else _memory_v2)(source, group.path)


def _groups(source: Source, process: int | str) -> dict[str, str]:
    """Controller (or "" for version 2) to the path of a process's group; odd lines are skipped."""
    text = source.text(f"/proc/{process}/cgroup")
    found: dict[str, str] = {}
    for match in re.finditer(r"^\d+:([^:\n]*):(/.*)$", "" if isinstance(text, Unknown) else text, re.MULTILINE):
        found |= dict.fromkeys(match[1].split(","), match[2])
    return found


def _mounts(source: Source) -> dict[str, list[Mount]]:
    """Controller (or "" for version 2) to every mount of it."""
    mounts = read_mounts(source)
    found: dict[str, list[Mount]] = defaultdict(list)
    for mount in () if isinstance(mounts, Unknown) else mounts:
        for controller in {"cgroup2": ("",), "cgroup": mount.options}.get(mount.kind, ()):
            found[controller].append(mount)
    return dict(found)


def _folders(
    source: Source, mounts: dict[str, list[Mount]], groups: dict[str, str], controller: str
) -> tuple[list[str], int]:
    """The folders of this process's group and of its parents, as far up as can be seen, and the version."""
    version = 1 if controller in groups and controller in mounts else 2
    key = controller if version == 1 else ""
    if key not in mounts or key not in groups:
        return [], version
    place = _place(source, mounts[key], groups[key])
    if place is None:
        return [], version
    leaf, mount = place
    folders = [leaf, *leaf.parents]
    return [str(folder) for folder in folders[: folders.index(mount) + 1]], version


def _place(source: Source, mounts: list[Mount], group: str) -> tuple[PurePosixPath, PurePosixPath] | None:
    """The folder of a group and the top of the mount that shows it.

    A controller may be mounted several times: the host's groups inside a container, or one group's folder elsewhere.
    The mount that shows all groups shows most parents; after that the closest one.
    """
    fitting = [mount for mount in mounts if _is_below(group, mount.root)]
    for mount in sorted(fitting, key=lambda mount: (mount.root != "/", -len(mount.root))):
        leaf = PurePosixPath(mount.folder) / PurePosixPath(group).relative_to(mount.root)
        if source.has_folder(str(leaf)):
            return leaf, PurePosixPath(mount.folder)
    # A path outside of the only mount ("/../x", or a host path seen from inside a container) is not visible here:
    # what is mounted is then the group that applies.
    top = PurePosixPath(mounts[0].folder)
    return (top, top) if len(mounts) == 1 else None


def _is_below(group: str, top: str) -> bool:
    return ".." not in (*group.split("/"), *top.split("/")) and PurePosixPath(group).is_relative_to(top)


def _memory_v2(source: Source, folder: str) -> MemoryGroup:
    return MemoryGroup(
        path=folder,
        version=2,
        maximum=source.fact(f"{folder}/memory.max", _limit),
        high=source.fact(f"{folder}/memory.high", _limit),
        swap=source.fact(f"{folder}/memory.swap.max", _limit),
        current=source.fact(f"{folder}/memory.current", _bytes),
        reclaimable=_page_cache(source, folder, ""),
        oom_kills=_field(source, f"{folder}/memory.events", "oom_kill"),
    )


def _memory_v1(source: Source, folder: str) -> MemoryGroup:
    return MemoryGroup(
        path=folder,
        version=1,
        maximum=source.fact(f"{folder}/memory.limit_in_bytes", _limit),
        high=unknown("version 1 has no such limit", f"{folder}/memory.high"),
        swap=source.fact(f"{folder}/memory.memsw.limit_in_bytes", _limit),
        current=source.fact(f"{folder}/memory.usage_in_bytes", _bytes),
        reclaimable=_page_cache(source, folder, "total_"),
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
    return CpuGroup(folder, 2, source.fact(f"{folder}/cpu.max", _quota))


def _cpu_v1(source: Source, folder: str) -> CpuGroup:
    path = f"{folder}/cpu.cfs_quota_us"
    period = source.text(f"{folder}/cpu.cfs_period_us")
    if isinstance(period, Unknown):
        return CpuGroup(folder, 1, Fact(period, path))
    return CpuGroup(folder, 1, source.fact(path, lambda quota: _quota(f"{quota} {period}")))


def _bytes(text: str) -> int:
    size = int(text)
    if size < 0:
        raise ValueError(text)
    return size


def _limit(text: str) -> int | NoLimit:
    if text.strip() == "max":
        return NO_LIMIT
    size = _bytes(text)
    return NO_LIMIT if size >= _V1_NO_LIMIT else size


def _quota(text: str) -> float | NoLimit:
    quota, period = text.split()
    # Version 1 writes -1 and version 2 "max" where there is no quota.
    if quota in {"max", "-1"}:
        return NO_LIMIT
    if int(quota) <= 0 or int(period) <= 0:
        raise ValueError(text)
    return int(quota) / int(period)


def _page_cache(source: Source, folder: str, prefix: str) -> Fact[int]:
    """Page cache that the kernel can drop: how recently it was used makes no difference to that."""
    path = f"{folder}/memory.stat"
    parts = [_field(source, path, f"{prefix}{kind}_file") for kind in ("active", "inactive")]
    known = [part.known for part in parts if part.known is not None]
    return Fact(sum(known) if known else parts[1].value, f"{path} {prefix}active_file + {prefix}inactive_file")


def _field(source: Source, path: str, key: str) -> Fact[int]:
    """One number out of a file of "key value" lines."""

    def pick(text: str) -> int | Unknown:
        match = re.search(rf"^{key} (\d+)$", text, re.MULTILINE)
        return int(match[1]) if match else Unknown("this kernel doesn't say")

    return Fact(source.fact(path, pick).value, f"{path} {key}")
