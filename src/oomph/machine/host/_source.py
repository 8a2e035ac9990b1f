"""The files and system calls that Linux facts are read from, on this machine or in a recording of another one.

A recording is a folder with copies of the machine's files (`proc/…`, `sys/…`) and a `volumes.json` with the sizes of
its file systems. All Linux readers use a `Source`, so that a Slurm node or a container can be tested on any machine.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from .._fact import Fact, Unknown

T = TypeVar("T")

_MAX_QUOTED = 40  # characters of unexpected file content that are shown


@dataclass(frozen=True)
class Source:
    """The files, environment variables and system calls of a machine.

    Attributes:
        root: "/" on a live machine, else the folder of the recording.
        environ: The environment variables.
        live: True if system calls may be used; a recording has files only.
    """

    root: Path = Path("/")
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    live: bool = True

    @classmethod
    def recorded(cls, folder: Path, environ: Mapping[str, str] | None = None) -> Source:
        """Return the source of a recorded machine."""
        return cls(root=folder, environ=environ or {}, live=False)

    def text(self, path: str) -> str | Unknown:
        """Read a text file by its absolute path on the machine."""
        try:
            return self.path(path).read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return Unknown("there is no such file")
        except OSError as error:
            # PSI files exist but fail with "operation not supported" if the kernel was started without PSI.
            return Unknown(error.strerror or str(error))

    def fact(self, path: str, parse: Callable[[str], T | Unknown]) -> Fact[T]:
        """Parse a file. If `parse` raises ValueError, the value is unknown."""
        text = self.text(path)
        if isinstance(text, Unknown):
            return Fact(text, path)
        try:
            return Fact(parse(text), path)
        except ValueError:
            return Fact(Unknown(f"unexpected text {text.strip()[:_MAX_QUOTED]!r}"), path)

    def has_folder(self, path: str) -> bool:
        """Return True if a folder exists and is accessible."""
        try:
            return self.path(path).is_dir()
        except OSError:
            return False

    def has_file(self, path: str) -> bool:
        """Return True if a file exists and is accessible."""
        try:
            return self.path(path).exists()
        except OSError:
            return False

    def path(self, path: str) -> Path:
        """Return the path of a machine's file on this machine."""
        return self.root / path.lstrip("/")

    def volume(self, path: str) -> tuple[int, int] | Unknown:
        """Return the total bytes of the file system that contains a path, and the bytes available to this user."""
        if not self.live:
            return self._recorded_volume(path)
        try:
            stat = os.statvfs(path)
        except OSError as error:
            return Unknown(error.strerror or str(error))
        return stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize

    def _recorded_volume(self, path: str) -> tuple[int, int] | Unknown:
        recorded = self.text("/volumes.json")
        volumes = {} if isinstance(recorded, Unknown) else json.loads(recorded)
        if path not in volumes:
            return Unknown("not in the recording")
        return volumes[path]["total"], volumes[path]["free"]

    def writable(self, path: str) -> bool | Unknown:
        """Return True if this user may create files in a folder."""
        if not self.live:
            return Unknown("not in the recording")
        return os.access(path, os.W_OK | os.X_OK)

    def after(self, seconds: float) -> Source:
        """Return the same machine some time later; a recording has its later files in the folder `later`."""
        if self.live:
            time.sleep(seconds)
            return self
        later = self.root / "later"
        return replace(self, root=later) if later.is_dir() else self
