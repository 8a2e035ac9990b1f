from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from oomph.machine._cgroup import read_cgroups
from oomph.machine._fact import NO_LIMIT, Unknown
from oomph.machine._source import Source
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
