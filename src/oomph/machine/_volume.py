"""File systems that training fills: where checkpoints go, and `/dev/shm`, through which loader workers hand batches."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath

from ._fact import Fact, Unknown, unknown
from ._mounts import MOUNTINFO, Mount, read_mounts
from ._source import Source

SHM = "/dev/shm"  # noqa: S108  the name is the system's

# How the disks of Hyper-V, KVM, VMware, Google's cloud, VirtualBox and Xen call themselves.
_HYPERVISORS = ("msft", "qemu", "vmware", "google", "vbox", "xen")


@dataclass(frozen=True)
class Volume:
    """A file system, seen from one of its folders.

    Attributes:
        path: the folder asked about.
        total: its size.
        free: what this user may still write.
        rotational: whether it lies on a spinning disk.
        writable: whether this user may make files in the folder.
    """

    path: str
    total: Fact[int]
    free: Fact[int]
    rotational: Fact[bool]
    writable: Fact[bool]


def read_volume(source: Source, path: str) -> Volume:
    """Read the file system that holds a folder of a Linux machine."""
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


def no_volume(path: str, why: str, origin: str) -> Volume:
    """A file system of which nothing is known."""
    return Volume(path, unknown(why, origin), unknown(why, origin), unknown(why, origin), unknown(why, origin))


def _rotational(source: Source, path: str) -> Fact[bool]:
    mounts = read_mounts(source)
    if isinstance(mounts, Unknown):
        return Fact(mounts, MOUNTINFO)
    folder = f"/sys/dev/block/{_device(mounts, path)}"
    about = source.text(f"{folder}/uevent")
    if isinstance(about, Unknown):
        return unknown("not on a disk of its own (memory, network or overlay)", folder)
    # A partition has no queue of its own; its disk is the folder above the one the link points to.
    holders = (folder, f"{folder}/..")
    if _is_virtual(source, about, holders):
        return unknown("a virtual disk: what the host keeps it on isn't visible", folder)
    for holder in holders:
        spins = source.fact(f"{holder}/queue/rotational", lambda text: bool(int(text)))
        if spins.known is not None:
            return Fact(spins.known, f"{folder} queue/rotational")
    return unknown("this disk doesn't say", folder)


def _is_virtual(source: Source, about: str, holders: tuple[str, ...]) -> bool:
    """Whether a hypervisor made the disk up: by its name, its maker, or because this is WSL."""
    name = re.search(r"^DEVNAME=(.+)$", about, re.MULTILINE)
    if name and re.match(r"(vd|xvd)", name[1]):
        return True
    labels = [source.text(f"{holder}/device/{label}") for holder in holders for label in ("vendor", "model")]
    made_up = any(isinstance(text, str) and text.strip().lower().startswith(_HYPERVISORS) for text in labels)
    release = source.text("/proc/sys/kernel/osrelease")
    return made_up or (isinstance(release, str) and "microsoft" in release.lower())


def _device(mounts: tuple[Mount, ...], path: str) -> str:
    """The major:minor number of the device mounted closest above a path; of several at one folder, the last."""
    above = [mount for mount in mounts if PurePosixPath(path).is_relative_to(mount.folder)]
    return max(reversed(above), key=lambda mount: len(mount.folder)).device if above else "?"
