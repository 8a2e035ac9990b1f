"""Mounted file systems, from `/proc/self/mountinfo`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .._fact import Unknown
from ._source import Source

MOUNTINFO = "/proc/self/mountinfo"


@dataclass(frozen=True)
class Mount:
    """A mounted file system.

    Attributes:
        device: Major:minor number.
        root: The part of the file system that is mounted; for cgroups, the group at the mount point.
        folder: The mount point.
        kind: The type of file system.
        options: Options of the file system; for version 1 cgroups they include the controllers.
    """

    device: str
    root: str
    folder: str
    kind: str
    options: tuple[str, ...]


def read_mounts(source: Source) -> tuple[Mount, ...] | Unknown:
    """Read the mounts of this process; malformed lines are skipped."""
    text = source.text(MOUNTINFO)
    if isinstance(text, Unknown):
        return text
    return tuple(mount for line in text.splitlines() if (mount := _parse_mount(line)) is not None)


def _parse_mount(line: str) -> Mount | None:
    # Any number of optional fields stands between the mount options and the dash.
    match = re.match(r"\d+ \d+ (\S+) (\S+) (\S+) \S+ (?:.*? )?- (\S+) .*?(\S+)$", line.strip())
    if match is None:
        return None
    device, root, folder, kind, options = match.groups()
    return Mount(device, _unescape(root), _unescape(folder), kind, tuple(options.split(",")))


def _unescape(name: str) -> str:
    """Decode the octal escapes that the kernel writes for spaces, tabs and backslashes."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), name)
