from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oomph.machine._cgroup import read_cgroups
from oomph.machine._fact import NO_LIMIT, Fact, Unknown
from oomph.machine._source import Source
from oomph.machine._volume import read_volume
from oomph.units import GIB

Recorded = Callable[[str], Source]


def test_a_container_of_version_2_sees_its_limits_at_the_top(recorded: Recorded) -> None:
    groups = read_cgroups(recorded("docker_v2"))
    (own,) = groups.memory
    assert (own.version, own.path) == (2, "/sys/fs/cgroup")
    assert own.maximum.known == 8 * GIB
    assert own.high.known is NO_LIMIT
    assert own.swap.known == 0
    assert (own.current.known, own.reclaimable.known, own.oom_kills.known) == (3 * GIB, GIB, 2)
    assert groups.cpu[0].quota.known == 4.0


def test_every_level_up_to_the_top_is_read(recorded: Recorded) -> None:
    groups = read_cgroups(recorded("nested"))
    assert [group.maximum.known for group in groups.memory[:3]] == [24 * GIB, 12 * GIB, 96 * GIB]
    assert groups.memory[1].high.known == 11 * GIB
    assert groups.memory[3].path == "/sys/fs/cgroup"
    assert isinstance(groups.memory[3].maximum.value, Unknown)
    assert [group.quota.known for group in groups.cpu][:2] == [NO_LIMIT, 8.0]


def test_version_1_in_a_container_knows_its_hidden_parent(recorded: Recorded) -> None:
    groups = read_cgroups(recorded("cgroup_v1"))
    assert [group.maximum.known for group in groups.memory] == [NO_LIMIT, 16 * GIB]
    assert groups.memory[1].maximum.source.endswith("hierarchical_memory_limit")
    assert groups.cpu[0].quota.known == 2.5


def test_a_slurm_job_is_limited_between_its_task_and_the_node(recorded: Recorded) -> None:
    groups = read_cgroups(recorded("slurm"))
    limits = [group.maximum.known for group in groups.memory]
    assert limits == [NO_LIMIT, 32 * GIB, 32 * GIB, 540_000_000_000, NO_LIMIT, NO_LIMIT]
    assert [group.oom_kills.known for group in groups.memory][:3] == [0, 1, 1]
    assert groups.cpu == ()


def test_the_top_of_a_plain_machine_has_no_limits_to_read(recorded: Recorded) -> None:
    groups = read_cgroups(recorded("bare_metal"))
    assert len(groups.memory) == 4
    assert [group.maximum.known for group in groups.memory] == [NO_LIMIT] * 3 + [None]


def test_a_group_outside_of_what_is_mounted_falls_back_to_the_mount(recorded: Recorded) -> None:
    source = recorded("docker_v2")
    for path in ("/../other", "/gone/away"):
        source.path("/proc/self/cgroup").write_text(f"0::{path}\n")
        assert [group.path for group in read_cgroups(source).memory] == ["/sys/fs/cgroup"]


def test_no_control_groups_at_all(tmp_path: Path) -> None:
    groups = read_cgroups(Source.recorded(tmp_path))
    assert groups.memory == ()
    assert groups.cpu == ()


def mount_again(source: Source, root: str, folder: str, **files: str) -> None:
    """Mount version 2 groups a second time, after the first, with some files at its top."""
    mounts = source.path("/proc/self/mountinfo")
    mounts.write_text(mounts.read_text() + f"900 1 0:33 {root} {folder} ro - cgroup2 cgroup rw\n")
    source.path(folder).mkdir(parents=True)
    for name, text in files.items():
        (source.path(folder) / name.replace("_", ".")).write_text(text)


@pytest.mark.parametrize("root", ["/../../..", "/another.slice"])
def test_a_second_mount_does_not_hide_our_own_limits(recorded: Recorded, root: str) -> None:
    source = recorded("docker_v2")
    mount_again(source, root, "/host/sys/fs/cgroup", memory_max=str(2 * GIB), cpu_max="max 100000")
    groups = read_cgroups(source)
    assert [group.maximum.known for group in groups.memory] == [8 * GIB]
    assert [group.quota.known for group in groups.cpu] == [4.0]


def test_of_several_mounts_the_one_that_shows_all_parents_is_read(recorded: Recorded) -> None:
    source = recorded("nested")
    before = read_cgroups(source)
    group = source.path("/proc/self/cgroup").read_text().strip().removeprefix("0::")
    mount_again(source, group, "/mine", memory_max="1")
    assert read_cgroups(source) == before


def test_several_mounts_of_which_none_is_ours_tell_nothing(recorded: Recorded) -> None:
    source = recorded("docker_v2")
    source.path("/proc/self/cgroup").write_text("0::/../other\n")
    mount_again(source, "/another.slice", "/elsewhere")
    assert read_cgroups(source).memory == ()


def test_all_page_cache_can_be_dropped_however_lately_it_was_used(recorded: Recorded) -> None:
    source = recorded("docker_v2")
    source.path("/sys/fs/cgroup/memory.stat").write_text(f"inactive_file {GIB}\nactive_file {2 * GIB}\n")
    assert read_cgroups(source).memory[0].reclaimable.known == 3 * GIB
    old = recorded("cgroup_v1")
    old.path("/sys/fs/cgroup/memory/memory.stat").write_text(f"total_inactive_file {GIB}\ntotal_active_file {GIB}\n")
    assert read_cgroups(old).memory[0].reclaimable.known == 2 * GIB


@pytest.mark.parametrize("text", ["", "\n", "-1", "lots", "9 9 9", "5 0"])
@pytest.mark.parametrize("name", ["memory.max", "memory.high", "memory.current", "memory.swap.max", "cpu.max"])
def test_a_file_with_odd_content_is_unknown(recorded: Recorded, name: str, text: str) -> None:
    source = recorded("docker_v2")
    source.path(f"/sys/fs/cgroup/{name}").write_text(text)
    groups = read_cgroups(source)
    own = groups.memory[0]
    facts: dict[str, Fact[Any]] = {
        "memory.max": own.maximum,
        "memory.high": own.high,
        "memory.current": own.current,
        "memory.swap.max": own.swap,
        "cpu.max": groups.cpu[0].quota,
    }
    value = facts[name].value
    assert isinstance(value, Unknown)
    assert value.unknown.startswith("unexpected text")


@pytest.mark.parametrize("odd", ["", "nonsense", "1 2 3", "1:2", "36 35 98:0 / /mnt rw,noatime -", ":::"])
def test_odd_lines_among_groups_and_mounts_are_skipped(recorded: Recorded, odd: str) -> None:
    source = recorded("docker_v2")
    before = read_cgroups(source)
    for path in ("/proc/self/cgroup", "/proc/self/mountinfo"):
        file = source.path(path)
        file.write_text(f"{odd}\n{file.read_text()}{odd}\n\n")
    assert read_cgroups(source) == before
    assert isinstance(read_volume(source, "/data").free.value, int)


def test_a_group_mounted_at_a_folder_with_a_space_is_read(recorded: Recorded) -> None:
    source = recorded("docker_v2")
    source.path("/sys/fs/cgroup").rename(source.path("/sys/fs/my cgroup"))
    mounts = source.path("/proc/self/mountinfo")
    mounts.write_text(mounts.read_text().replace("/sys/fs/cgroup", r"/sys/fs/my\040cgroup"))
    assert read_cgroups(source).memory[0].maximum.known == 8 * GIB
