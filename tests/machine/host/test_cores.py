from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from oomph.machine import Machine
from oomph.machine.host import Source, read_cores


@pytest.mark.parametrize(
    ("name", "online", "allowed", "usable"),
    [
        ("bare_metal", 16, 16, 16),
        ("docker_v2", 64, 64, 4),
        ("nested", 32, 32, 8),
        ("cgroup_v1", 8, 8, 2.5),
        ("slurm", 128, 8, 8),
    ],
)
def test_affinity_and_quota_limit_the_cores(
    machine: Callable[[str], Machine], name: str, online: int, allowed: int, usable: float
) -> None:
    cores = machine(name).cores
    assert (cores.online.known, cores.allowed.known, cores.usable.known) == (online, allowed, usable)


def test_source_of_a_quota_is_its_file(machine: Callable[[str], Machine]) -> None:
    assert machine("docker_v2").cores.usable.source == "/sys/fs/cgroup/cpu.max"


def test_affinity_of_this_process_counts() -> None:
    all_cores = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(all_cores)})
        assert read_cores(Source(), ()).usable.known == 1
    finally:
        os.sched_setaffinity(0, all_cores)


def test_unreadable_cores_are_unknown(tmp_path: Path) -> None:
    assert read_cores(Source.recorded(tmp_path), ()).usable.known is None


@pytest.mark.parametrize("text", ["", "none", "0-", "0-3,,8"])
def test_malformed_core_list_is_unknown(tmp_path: Path, text: str) -> None:
    folder = tmp_path / "sys/devices/system/cpu"
    folder.mkdir(parents=True)
    (folder / "online").write_text(text)
    assert read_cores(Source.recorded(tmp_path), ()).online.known is None
