"""Memory and disks of macOS and Windows hosts."""

from __future__ import annotations

import os

import psutil

from .._fact import Fact, unknown
from ._memory import Memory
from ._volume import Volume


def read_non_linux_memory(system: str) -> Memory:
    """Read the memory of this macOS or Windows machine."""
    if system == "windows":
        from ._windows import read_windows_memory  # noqa: PLC0415  only its own system needs it

        return read_windows_memory()
    from ._macos import read_macos_memory  # noqa: PLC0415

    return read_macos_memory()


def read_non_linux_volume(folder: str) -> Volume:
    """Read the file system that contains a folder of this macOS or Windows machine."""
    usage, source = psutil.disk_usage(folder), "psutil.disk_usage()"
    return Volume(
        path=folder,
        total=Fact(usage.total, source),
        free=Fact(usage.free, source),
        rotational=unknown("not read on this system", source),
        # On Windows os.access() reads an attribute that folders ignore.
        writable=unknown("Windows reports it only when a file is written", source)
        if os.name == "nt"
        else Fact(os.access(folder, os.W_OK | os.X_OK), "access"),
    )
