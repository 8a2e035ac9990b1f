"""File systems that training fills: where checkpoints go, and `/dev/shm`, through which loader workers hand batches."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath

from ._fact import Fact, Unknown, unknown
from ._source import Source

SHM = "/dev/shm"  # noqa: S108  the name is the system's


@dataclass(frozen=True)
class Volume:
    """A file system, seen from one of its folders.

    Attributes:
        path: the folder asked about.
        total: its size.
        free: what this user may still write.
        rotational: whether it lies on a spinning disk.
    """

    path: str
    total: Fact[int]
    free: Fact[int]
    rotational: Fact[bool]


def read_volume(source: Source, path: str) -> Volume:
    """Read the file system that holds a folder of a Linux machine."""
    space = source.volume(path)
    origin = f"statvfs {path}"
    if isinstance(space, Unknown):
        return Volume(path, Fact(space, origin), Fact(space, origin), unknown(space.unknown, origin))
    total, free = space
    return Volume(path, Fact(total, origin), Fact(free, origin), _rotational(source, path))


def _rotational(source: Source, path: str) -> Fact[bool]:
    mounts = source.text("/proc/self/mountinfo")
    if isinstance(mounts, Unknown):
        return Fact(mounts, "/proc/self/mountinfo")
    device = _device(mounts, path)
    folder = f"/sys/dev/block/{device}"
    about = source.text(f"{folder}/uevent")
    if isinstance(about, Unknown):
        return unknown("not on a disk of its own (memory, network or overlay)", folder)
    name = re.search(r"^DEVNAME=(.+)$", about, re.MULTILINE)
    if name and re.match(r"(vd|xvd)", name[1]):
        return unknown("a virtual disk: what the host keeps it on isn't visible", folder)
    # A partition has no queue of its own; its disk is the folder above the one the link points to.
    real = source.path(folder).resolve()
    for holder in (real, real.parent):
        queue = holder / "queue" / "rotational"
        if queue.is_file():
            return Fact(queue.read_text().strip() == "1", f"{folder} queue/rotational")
    return unknown("this disk doesn't say", folder)


def _device(mounts: str, path: str) -> str:
    """The major:minor number of the device mounted closest above a path."""
    best, number = -1, "?"
    for line in mounts.splitlines():
        fields = line.split()
        # Octal escapes for spaces in the mount's folder.
        folder = re.sub(r"\\(\d{3})", lambda match: chr(int(match[1], 8)), fields[4])
        if PurePosixPath(path).is_relative_to(folder) and len(folder) >= best:
            best, number = len(folder), fields[2]
    return number
