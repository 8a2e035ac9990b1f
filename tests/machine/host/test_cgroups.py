from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oomph.machine import NO_LIMIT, Fact, Unknown
from oomph.machine.host import Source, read_cgroups, read_volume
from oomph.units import GIB

Recorded = Callable[[str], Source]


def test_version_2_container_has_its_limits_at_the_root(recorded: Recorded) -> None:
    groups = read_cgroups(recorded("docker_v2"))
    (cgroup,) = groups.memory
    assert (cgroup.version, cgroup.path) == (2, "/sys/fs/cgroup")
    assert cgroup.limit.known == 8 * GIB
    assert cgroup.high.known is NO_LIMIT
    assert cgroup.swap_limit.known == 0
    assert (cgroup.current.known, cgroup.reclaimable.known, cgroup.oom_kills.known) == (3 * GIB, GIB, 2)
    assert groups.cpu[0].quota.known == 4.0


def test_all_levels_up_to_the_root_are_read(recorded: Recorded) -> None:
    groups = read_cgroups(recorded("nested"))
    assert [group.limit.known for group in groups.memory[:3]] == [24 * GIB, 12 * GIB, 96 * GIB]
    assert groups.memory[1].high.known == 11 * GIB
    assert groups.memory[3].path == "/sys/fs/cgroup"
    assert isinstance(groups.memory[3].limit.value, Unknown)
    assert [group.quota.known for group in groups.cpu][:2] == [NO_LIMIT, 8.0]


def test_version_1_container_reports_the_limit_of_its_hidden_parent(recorded: Recorded) -> None:
    groups = read_cgroups(recorded("cgroup_v1"))
    assert [group.limit.known for group in groups.memory] == [NO_LIMIT, 16 * GIB]
    assert groups.memory[1].limit.source.endswith("hierarchical_memory_limit")
    assert groups.cpu[0].quota.known == 2.5


def test_slurm_limits_lie_between_task_and_node(recorded: Recorded) -> None:
    groups = read_cgroups(recorded("slurm"))
    limits = [group.limit.known for group in groups.memory]
    assert limits == [NO_LIMIT, 32 * GIB, 32 * GIB, 540_000_000_000, NO_LIMIT, NO_LIMIT]
    assert [group.oom_kills.known for group in groups.memory][:3] == [0, 1, 1]
    assert groups.cpu == ()


def test_root_of_a_plain_machine_has_no_limits(recorded: Recorded) -> None:
    groups = read_cgroups(recorded("bare_metal"))
    assert len(groups.memory) == 4
    assert [group.limit.known for group in groups.memory] == [NO_LIMIT] * 3 + [None]


def test_group_outside_the_mount_falls_back_to_the_mount(recorded: Recorded) -> None:
    source = recorded("docker_v2")
    for path in ("/../other", "/gone/away"):
        source.path("/proc/self/cgroup").write_text(f"0::{path}\n")
        assert [group.path for group in read_cgroups(source).memory] == ["/sys/fs/cgroup"]


def test_machine_without_cgroups(tmp_path: Path) -> None:
    groups = read_cgroups(Source.recorded(tmp_path))
    assert groups.memory == ()
    assert groups.cpu == ()


def mount_again(source: Source, root: str, folder: str, **files: str) -> None:
    """Add a second version 2 mount with some files at its root."""
    mounts = source.path("/proc/self/mountinfo")
    mounts.write_text(mounts.read_text() + f"900 1 0:33 {root} {folder} ro - cgroup2 cgroup rw\n")
    source.path(folder).mkdir(parents=True)
    for name, text in files.items():
        (source.path(folder) / name.replace("_", ".")).write_text(text)


@pytest.mark.parametrize("root", ["/../../..", "/another.slice"])
def test_second_mount_does_not_hide_the_limits(recorded: Recorded, root: str) -> None:
    source = recorded("docker_v2")
    mount_again(source, root, "/host/sys/fs/cgroup", memory_max=str(2 * GIB), cpu_max="max 100000")
    groups = read_cgroups(source)
    assert [group.limit.known for group in groups.memory] == [8 * GIB]
    assert [group.quota.known for group in groups.cpu] == [4.0]


def test_mount_that_shows_all_parents_is_preferred(recorded: Recorded) -> None:
    source = recorded("nested")
    before = read_cgroups(source)
    group = source.path("/proc/self/cgroup").read_text().strip().removeprefix("0::")
    mount_again(source, group, "/mine", memory_max="1")
    assert read_cgroups(source) == before


def test_several_foreign_mounts_are_ignored(recorded: Recorded) -> None:
    source = recorded("docker_v2")
    source.path("/proc/self/cgroup").write_text("0::/../other\n")
    mount_again(source, "/another.slice", "/elsewhere")
    assert read_cgroups(source).memory == ()


def test_active_and_inactive_page_cache_are_reclaimable(recorded: Recorded) -> None:
    source = recorded("docker_v2")
    source.path("/sys/fs/cgroup/memory.stat").write_text(f"inactive_file {GIB}\nactive_file {2 * GIB}\n")
    assert read_cgroups(source).memory[0].reclaimable.known == 3 * GIB
    old = recorded("cgroup_v1")
    old.path("/sys/fs/cgroup/memory/memory.stat").write_text(f"total_inactive_file {GIB}\ntotal_active_file {GIB}\n")
    assert read_cgroups(old).memory[0].reclaimable.known == 2 * GIB


@pytest.mark.parametrize("text", ["", "\n", "-1", "lots", "9 9 9", "5 0"])
@pytest.mark.parametrize("name", ["memory.max", "memory.high", "memory.current", "memory.swap.max", "cpu.max"])
def test_unexpected_content_is_unknown(recorded: Recorded, name: str, text: str) -> None:
    source = recorded("docker_v2")
    source.path(f"/sys/fs/cgroup/{name}").write_text(text)
    groups = read_cgroups(source)
    cgroup = groups.memory[0]
    facts: dict[str, Fact[Any]] = {
        "memory.max": cgroup.limit,
        "memory.high": cgroup.high,
        "memory.current": cgroup.current,
        "memory.swap.max": cgroup.swap_limit,
        "cpu.max": groups.cpu[0].quota,
    }
    value = facts[name].value
    assert isinstance(value, Unknown)
    assert value.unknown.startswith("unexpected text")


@pytest.mark.parametrize("line", ["", "nonsense", "1 2 3", "1:2", "36 35 98:0 / /mnt rw,noatime -", ":::"])
def test_malformed_cgroup_and_mount_lines_are_skipped(recorded: Recorded, line: str) -> None:
    source = recorded("docker_v2")
    before = read_cgroups(source)
    for path in ("/proc/self/cgroup", "/proc/self/mountinfo"):
        file = source.path(path)
        file.write_text(f"{line}\n{file.read_text()}{line}\n\n")
    assert read_cgroups(source) == before
    assert isinstance(read_volume(source, "/data").free.value, int)


def test_mount_point_with_a_space_is_read(recorded: Recorded) -> None:
    source = recorded("docker_v2")
    source.path("/sys/fs/cgroup").rename(source.path("/sys/fs/my cgroup"))
    mounts = source.path("/proc/self/mountinfo")
    mounts.write_text(mounts.read_text().replace("/sys/fs/cgroup", r"/sys/fs/my\040cgroup"))
    assert read_cgroups(source).memory[0].limit.known == 8 * GIB
