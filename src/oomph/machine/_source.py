"""Where Linux facts come from: the file systems and calls of this machine, or of a recorded one.

A recorded machine is a folder with the same files (`proc/…`, `sys/…`) and a `volumes.json` for what only a call can
tell. Everything that reads Linux goes through here, so that a Slurm node or a container can be tested on any machine.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from ._fact import Fact, Unknown

T = TypeVar("T")

_QUOTED = 40  # characters of an odd file that are shown


@dataclass(frozen=True)
class Source:
    """The files and calls that facts are read from.

    Attributes:
        root: "/" on a live machine, the folder of a recording otherwise.
        environ: the environment variables.
        live: whether calls may be asked, or only files.
    """

    root: Path = Path("/")
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    live: bool = True

    @classmethod
    def recorded(cls, folder: Path, environ: Mapping[str, str] | None = None) -> Source:
        """Read a recorded machine instead of this one."""
        return cls(root=folder, environ=environ or {}, live=False)

    def text(self, path: str) -> str | Unknown:
        """The text of a file, given by its absolute path on the machine."""
        try:
            return self.path(path).read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return Unknown("there is no such file")
        except OSError as error:
            # PSI is there but answers "operation not supported" when it is switched off: not an error of ours.
            return Unknown(error.strerror or str(error))

    def fact(self, path: str, parse: Callable[[str], T | Unknown]) -> Fact[T]:
        """What a file says; a text that `parse` refuses with a ValueError is unknown."""
        text = self.text(path)
        if isinstance(text, Unknown):
            return Fact(text, path)
        try:
            return Fact(parse(text), path)
        except ValueError:
            return Fact(Unknown(f"unexpected text {text.strip()[:_QUOTED]!r}"), path)

    def has_folder(self, path: str) -> bool:
        """Whether a folder is there and may be looked into."""
        try:
            return self.path(path).is_dir()
        except OSError:
            return False

    def has_file(self, path: str) -> bool:
        """Whether a file is there; one that can't be seen isn't."""
        try:
            return self.path(path).exists()
        except OSError:
            return False

    def path(self, path: str) -> Path:
        """Where a file of the machine really lies."""
        return self.root / path.lstrip("/")

    def volume(self, path: str) -> tuple[int, int] | Unknown:
        """The total bytes of the file system that holds a path, and those free to this user."""
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
        """Whether this user may make files in a folder."""
        if not self.live:
            return Unknown("not in the recording")
        return os.access(path, os.W_OK | os.X_OK)

    def wait(self, seconds: float) -> Source:
        """The same machine a little later; a recording holds its later files in the folder `later`."""
        if self.live:
            time.sleep(seconds)
            return self
        later = self.root / "later"
        return replace(self, root=later) if later.is_dir() else self
