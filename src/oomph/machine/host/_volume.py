"""File systems that training fills: the one for checkpoints, and `/dev/shm`, where loader workers put batches."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath

from .._fact import Fact, Unknown, unknown
from ._mounts import MOUNTINFO, Mount, read_mounts
from ._source import Source

SHM = "/dev/shm"  # noqa: S108  the system's fixed path

# Vendor strings of virtual disks: Hyper-V, KVM, VMware, Google Cloud, VirtualBox, Xen.
_HYPERVISORS = ("msft", "qemu", "vmware", "google", "vbox", "xen")


@dataclass(frozen=True)
class Volume:
    """A file system, seen from one of its folders.

    Attributes:
        path: The folder.
        total: Size of the file system.
        free: Bytes that this user may still write.
        rotational: True if it is on a spinning disk.
        writable: True if this user may create files in the folder.
    """

    path: str
    total: Fact[int]
    free: Fact[int]
    rotational: Fact[bool]
    writable: Fact[bool]


def read_volume(source: Source, path: str) -> Volume:
    """Read the file system that contains a folder of a Linux machine."""
    space = source.volume(path)
    origin = f"statvfs {path}"
    if isinstance(space, Unknown):
        return no_volume(path, space.unknown, origin)
    total, free = space
    return Volume(
        path=path,
        total=Fact(total, origin),
        free=Fact(free, origin),
        rotational=_rotational(source, path),
        writable=Fact(source.writable(path), f"access {path}"),
    )


def no_volume(path: str, reason: str, origin: str) -> Volume:
    """Return a file system that could not be read."""
    return Volume(
        path, unknown(reason, origin), unknown(reason, origin), unknown(reason, origin), unknown(reason, origin)
    )


def _rotational(source: Source, path: str) -> Fact[bool]:
    mounts = read_mounts(source)
    if isinstance(mounts, Unknown):
        return Fact(mounts, MOUNTINFO)
    folder = f"/sys/dev/block/{_device_number(mounts, path)}"
    uevent = source.text(f"{folder}/uevent")
    if isinstance(uevent, Unknown):
        return unknown("not on a block device (memory, network or overlay)", folder)
    # A partition has no queue folder; its disk is the parent of the folder that the link points to.
    devices = (folder, f"{folder}/..")
    if _is_virtual(source, uevent, devices):
        return unknown("a virtual disk doesn't show the host's hardware", folder)
    for device in devices:
        rotational = source.fact(f"{device}/queue/rotational", lambda text: bool(int(text)))
        if rotational.known is not None:
            return Fact(rotational.known, f"{folder} queue/rotational")
    return unknown("this disk doesn't report it", folder)


def _is_virtual(source: Source, uevent: str, devices: tuple[str, ...]) -> bool:
    """Return True for a hypervisor's disk: by its device name, its vendor, or because this is WSL."""
    name = re.search(r"^DEVNAME=(.+)$", uevent, re.MULTILINE)
    if name and re.match(r"(vd|xvd)", name[1]):
        return True
    labels = [source.text(f"{device}/device/{label}") for device in devices for label in ("vendor", "model")]
    is_virtual = any(isinstance(text, str) and text.strip().lower().startswith(_HYPERVISORS) for text in labels)
    release = source.text("/proc/sys/kernel/osrelease")
    return is_virtual or (isinstance(release, str) and "microsoft" in release.lower())


def _device_number(mounts: tuple[Mount, ...], path: str) -> str:
    """Return the major:minor number of the closest mount above a path; the last one if several share a mount point."""
    above = [mount for mount in mounts if PurePosixPath(path).is_relative_to(mount.folder)]
    return max(reversed(above), key=lambda mount: len(mount.folder)).device if above else "?"
