"""Memory and CPU limits of cgroups, version 1 and 2, from the group of a process up to the root.

Any level may have the tightest limit, so every visible level is read. A container often sees its own group as the root.
Version 1 then still reports the limit of hidden parents as `hierarchical_memory_limit`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import PurePosixPath

from .._fact import NO_LIMIT, Fact, Limit, NoLimit, Unknown, unknown
from ._kernel_table import KernelTable
from ._mounts import Mount, read_mounts
from ._source import Source

# Version 1 writes "no limit" as the largest number of whole pages below 2**63.
_MIN_V1_NO_LIMIT = 2**62


@dataclass(frozen=True)
class MemoryCgroup:
    """One level of the memory controller.

    Attributes:
        path: The group's folder.
        version: The cgroup version, 1 or 2.
        limit: The size beyond which the kernel kills.
        high: The size beyond which the kernel throttles the group.
        swap_limit: Swap that the group may use (version 1: memory and swap together).
        current: Memory that the group uses, page cache included.
        reclaimable: The part of `current` that is page cache, which the kernel can drop.
        oom_kills: Processes of the group that the kernel has killed because memory ran out.
    """

    path: str
    version: int
    limit: Limit
    high: Limit
    swap_limit: Limit
    current: Fact[int]
    reclaimable: Fact[int]
    oom_kills: Fact[int]

    @property
    def used(self) -> int | None:
        """Memory in use without the page cache, or None if it is unknown."""
        if self.current.known is None:
            return None
        return max(self.current.known - (self.reclaimable.known or 0), 0)


@dataclass(frozen=True)
class CpuCgroup:
    """One level of the CPU controller; `quota` is the number of cores whose time the group may use."""

    path: str
    version: int
    quota: Fact[float | NoLimit]


@dataclass(frozen=True)
class Cgroups:
    """All levels that apply to a process, its own group first."""

    memory: tuple[MemoryCgroup, ...]
    cpu: tuple[CpuCgroup, ...]


def read_cgroups(source: Source, process: int | str = "self") -> Cgroups:
    """Read all levels of the memory and CPU controllers that apply to a process."""
    mounts = _read_cgroup_mounts(source)
    paths = _read_cgroup_paths(source, process)
    memory_folders, memory_version = _cgroup_folders(source, mounts, paths, "memory")
    cpu_folders, cpu_version = _cgroup_folders(source, mounts, paths, "cpu")
    read_memory = _read_memory_v1 if memory_version == 1 else _read_memory_v2
    read_cpu = _read_cpu_v1 if cpu_version == 1 else _read_cpu_v2
    memory = tuple(read_memory(source, folder) for folder in memory_folders)
    return Cgroups(
        memory=(*memory, *_hidden_parents(source, memory)),
        cpu=tuple(read_cpu(source, folder) for folder in cpu_folders),
    )


def memory_cgroups() -> tuple[MemoryCgroup, ...]:
    """Return the levels of the memory controller that apply to this process, its own group first."""
    return read_cgroups(Source()).memory


def memory_cgroup(folder: str, version: int) -> MemoryCgroup:
    """Return the group of a folder."""
    return (_read_memory_v1 if version == 1 else _read_memory_v2)(Source(), folder)


def refresh_memory_cgroup(source: Source, cgroup: MemoryCgroup) -> MemoryCgroup:
    """Read one level of the memory controller again."""
    return (_read_memory_v1 if cgroup.version == 1 else _read_memory_v2)(source, cgroup.path)


def _read_cgroup_paths(source: Source, process: int | str) -> dict[str, str]:
    """Map each controller ("" for version 2) to the path of the process's group; malformed lines are skipped."""
    text = source.text(f"/proc/{process}/cgroup")
    paths: dict[str, str] = {}
    for match in re.finditer(r"^\d+:([^:\n]*):(/.*)$", "" if isinstance(text, Unknown) else text, re.MULTILINE):
        paths |= dict.fromkeys(match[1].split(","), match[2])
    return paths


def _read_cgroup_mounts(source: Source) -> dict[str, list[Mount]]:
    """Map each controller ("" for version 2) to its mounts."""
    mounts = read_mounts(source)
    by_controller: dict[str, list[Mount]] = defaultdict(list)
    for mount in () if isinstance(mounts, Unknown) else mounts:
        for controller in {"cgroup2": ("",), "cgroup": mount.options}.get(mount.kind, ()):
            by_controller[controller].append(mount)
    return dict(by_controller)


def _cgroup_folders(
    source: Source, mounts: dict[str, list[Mount]], paths: dict[str, str], controller: str
) -> tuple[list[str], int]:
    """Return the folders of the process's group and its visible parents, and the cgroup version."""
    version = 1 if controller in paths and controller in mounts else 2
    key = controller if version == 1 else ""
    if key not in mounts or key not in paths:
        return [], version
    location = _locate_group(source, mounts[key], paths[key])
    if location is None:
        return [], version
    leaf, mount_point = location
    folders = [leaf, *leaf.parents]
    return [str(folder) for folder in folders[: folders.index(mount_point) + 1]], version


def _locate_group(source: Source, mounts: list[Mount], path: str) -> tuple[PurePosixPath, PurePosixPath] | None:
    """Return the folder of a group and the mount point that contains it.

    A controller may be mounted several times: the host's groups inside a container, or one group's folder elsewhere.
    The mount of the whole hierarchy shows most parents and comes first; after that, the mount closest to the group.
    """
    candidates = [mount for mount in mounts if _is_below(path, mount.root)]
    for mount in sorted(candidates, key=lambda mount: (mount.root != "/", -len(mount.root))):
        leaf = PurePosixPath(mount.folder) / PurePosixPath(path).relative_to(mount.root)
        if source.has_folder(str(leaf)):
            return leaf, PurePosixPath(mount.folder)
    # A path outside the only mount ("/../x", or a host path seen from inside a container) is not visible here.
    # The mounted group is then the one that applies.
    top = PurePosixPath(mounts[0].folder)
    return (top, top) if len(mounts) == 1 else None


def _is_below(path: str, root: str) -> bool:
    return ".." not in (*path.split("/"), *root.split("/")) and PurePosixPath(path).is_relative_to(root)


def _read_memory_v2(source: Source, folder: str) -> MemoryCgroup:
    return MemoryCgroup(
        path=folder,
        version=2,
        limit=source.fact(f"{folder}/memory.max", _parse_limit),
        high=source.fact(f"{folder}/memory.high", _parse_limit),
        swap_limit=source.fact(f"{folder}/memory.swap.max", _parse_limit),
        current=source.fact(f"{folder}/memory.current", _parse_bytes),
        reclaimable=_page_cache(source, folder, ""),
        oom_kills=_read_counter(source, f"{folder}/memory.events", "oom_kill"),
    )


def _read_memory_v1(source: Source, folder: str) -> MemoryCgroup:
    return MemoryCgroup(
        path=folder,
        version=1,
        limit=source.fact(f"{folder}/memory.limit_in_bytes", _parse_limit),
        high=unknown("cgroup version 1 has no throttle limit", f"{folder}/memory.high"),
        swap_limit=source.fact(f"{folder}/memory.memsw.limit_in_bytes", _parse_limit),
        current=source.fact(f"{folder}/memory.usage_in_bytes", _parse_bytes),
        reclaimable=_page_cache(source, folder, "total_"),
        oom_kills=_read_counter(source, f"{folder}/memory.oom_control", "oom_kill"),
    )


def _hidden_parents(source: Source, levels: tuple[MemoryCgroup, ...]) -> tuple[MemoryCgroup, ...]:
    """Return the limit of parents that a version 1 group can't see, as one more level."""
    if not levels or levels[0].version != 1:
        return ()
    stat = f"{levels[0].path}/memory.stat"
    inherited = _read_counter(source, stat, "hierarchical_memory_limit").map(lambda size: _parse_limit(str(size)))
    visible = [level.limit.known for level in levels]
    if inherited.known is None or inherited.known in (*visible, NO_LIMIT):
        return ()
    reason = "the parent group is not visible from here"
    return (
        MemoryCgroup(
            path=f"{levels[-1].path}/..",
            version=1,
            limit=inherited,
            high=unknown(reason, stat),
            swap_limit=unknown(reason, stat),
            current=unknown(reason, stat),
            reclaimable=unknown(reason, stat),
            oom_kills=unknown(reason, stat),
        ),
    )


def _read_cpu_v2(source: Source, folder: str) -> CpuCgroup:
    return CpuCgroup(folder, 2, source.fact(f"{folder}/cpu.max", _parse_quota))


def _read_cpu_v1(source: Source, folder: str) -> CpuCgroup:
    path = f"{folder}/cpu.cfs_quota_us"
    period = source.text(f"{folder}/cpu.cfs_period_us")
    if isinstance(period, Unknown):
        return CpuCgroup(folder, 1, Fact(period, path))
    return CpuCgroup(folder, 1, source.fact(path, lambda quota: _parse_quota(f"{quota} {period}")))


def _parse_bytes(text: str) -> int:
    size = int(text)
    if size < 0:
        raise ValueError(text)
    return size


def _parse_limit(text: str) -> int | NoLimit:
    if text.strip() == "max":
        return NO_LIMIT
    size = _parse_bytes(text)
    return NO_LIMIT if size >= _MIN_V1_NO_LIMIT else size


def _parse_quota(text: str) -> float | NoLimit:
    quota, period = text.split()
    # "No quota" is -1 in version 1 and "max" in version 2.
    if quota in {"max", "-1"}:
        return NO_LIMIT
    if int(quota) <= 0 or int(period) <= 0:
        raise ValueError(text)
    return int(quota) / int(period)


def _page_cache(source: Source, folder: str, prefix: str) -> Fact[int]:
    """Return the page cache, active and inactive: the kernel can drop both."""
    path = f"{folder}/memory.stat"
    active, inactive = f"{prefix}active_file", f"{prefix}inactive_file"
    table = KernelTable(source, path, (active, inactive))
    sizes = [size for size in (table.get(active), table.get(inactive)) if size is not None]
    return Fact(sum(sizes) if sizes else table.fact(inactive).value, f"{path} {active} + {inactive}")


def _read_counter(source: Source, path: str, key: str) -> Fact[int]:
    return KernelTable(source, path, (key,)).fact(key)
