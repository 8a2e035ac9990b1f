from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from oomph.machine import Unknown
from oomph.machine.host import Source, read_volume
from oomph.units import GIB, MIB

Recorded = Callable[[str], Source]


@pytest.mark.parametrize(("name", "rotational"), [("bare_metal", False), ("cgroup_v1", True)])
def test_rotational_disks_are_detected(recorded: Recorded, name: str, rotational: bool) -> None:  # noqa: FBT001
    assert read_volume(recorded(name), "/data").rotational.known is rotational


def test_virtual_disk_is_unknown_although_it_claims_to_rotate(recorded: Recorded) -> None:
    value = read_volume(recorded("no_limit"), "/data").rotational.value
    assert isinstance(value, Unknown)
    assert "virtual" in value.unknown


@pytest.mark.parametrize("vendor", ["Msft    ", "QEMU", "VMware, ", "Google  "])
def test_disk_of_a_hypervisor_is_unknown(recorded: Recorded, vendor: str) -> None:
    source = recorded("cgroup_v1")
    device = source.path("/sys/devices/sda/device")
    device.mkdir()
    (device / "vendor").write_text(f"{vendor}\n")
    assert isinstance(read_volume(source, "/data").rotational.value, Unknown)


def test_disk_of_wsl_is_unknown(recorded: Recorded) -> None:
    assert isinstance(read_volume(recorded("wsl"), "/data").rotational.value, Unknown)


def test_overlay_is_unknown(recorded: Recorded) -> None:
    assert isinstance(read_volume(recorded("docker_v2"), "/data").rotational.value, Unknown)


def test_shm_of_a_container_is_small(recorded: Recorded) -> None:
    shm = read_volume(recorded("docker_v2"), "/dev/shm")
    assert shm.total.known == 64 * MIB


def test_mount_point_with_a_space_is_found(recorded: Recorded) -> None:
    source = recorded("bare_metal")
    mounts = source.path("/proc/self/mountinfo")
    mounts.write_text(mounts.read_text() + r"99 29 8:17 / /my\040disk rw - ext4 /dev/sdb1 rw" + "\n")
    disk = source.path("/sys/devices/sdb")
    (disk / "queue").mkdir(parents=True)
    (disk / "queue" / "rotational").write_text("1\n")
    (disk / "uevent").write_text("DEVNAME=sdb1\n")
    source.path("/sys/dev/block/8:17").symlink_to(disk)
    source.path("/volumes.json").write_text('{"/my disk/runs": {"total": 2, "free": 1}}')
    assert read_volume(source, "/my disk/runs").rotational.known is True


def test_disk_of_this_machine_agrees_with_statvfs(tmp_path: Path) -> None:
    volume = read_volume(Source(), str(tmp_path))
    stat = os.statvfs(tmp_path)
    assert volume.total.known == stat.f_blocks * stat.f_frsize
    assert volume.free.known == pytest.approx(stat.f_bavail * stat.f_frsize, abs=GIB)
