"""What is mounted where, from `/proc/self/mountinfo`: the one reader of that file."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ._fact import Unknown
from ._source import Source

MOUNTINFO = "/proc/self/mountinfo"


@dataclass(frozen=True)
class Mount:
    """One mount.

    Attributes:
        device: major:minor number.
        root: which part of the file system is shown; for control groups, the group at the top.
        folder: where it is mounted.
        kind: the type of file system.
        options: of the file system itself; for version 1 control groups, the controllers are among them.
    """

    device: str
    root: str
    folder: str
    kind: str
    options: tuple[str, ...]


def read_mounts(source: Source) -> tuple[Mount, ...] | Unknown:
    """Every mount of this process; lines that don't look like one are skipped."""
    text = source.text(MOUNTINFO)
    if isinstance(text, Unknown):
        return text
    return tuple(mount for line in text.splitlines() if (mount := _mount(line)) is not None)


def _mount(line: str) -> Mount | None:
    # Between the folder's options and the dash stand any number of optional fields.
    match = re.match(r"\d+ \d+ (\S+) (\S+) (\S+) \S+ (?:.*? )?- (\S+) .*?(\S+)$", line.strip())
    if match is None:
        return None
    device, root, folder, kind, options = match.groups()
    return Mount(device, _unescape(root), _unescape(folder), kind, tuple(options.split(",")))


def _unescape(name: str) -> str:
    """The kernel writes spaces, tabs and backslashes of names as octal numbers."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), name)
