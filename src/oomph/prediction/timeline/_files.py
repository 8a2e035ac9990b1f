"""The files that a prediction writes its timeline to."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ...errors import MissingFile, UsageError, quote
from ...files import write_atomically
from ...machine import Target
from ...settings import Settings
from ...trace import Trace
from ._chrome_trace import chrome_trace
from ._memory_snapshot import memory_snapshot

_PICKLE_PROTOCOL = 4  # the latest that torch's viewer reads


@dataclass(frozen=True)
class TimelineFiles:
    """The files that a prediction writes its timeline to; None for those that are not requested.

    Attributes:
        snapshot: a memory snapshot for torch's tools.
        trace: trace events for Perfetto and Chrome.
    """

    snapshot: str | os.PathLike[str] | None = None
    trace: str | os.PathLike[str] | None = None

    def __bool__(self) -> bool:
        return bool(self.paths)

    @property
    def paths(self) -> tuple[Path, ...]:
        """The requested files."""
        return tuple(Path(path) for path in (self.snapshot, self.trace) if path is not None)

    def check(self, target: Target) -> None:
        """Check the files before the prediction is made.

        Raises:
            UsageError: the target is a CPU, both files are the same, or one can't be written.
        """
        if not self:
            return
        if target.is_cpu:
            raise UsageError("a timeline shows torch's CUDA allocator, and the target is the CPU", "name a GPU")
        if len(set(self.paths)) < len(self.paths):
            raise UsageError(f"the snapshot and the trace are both {quote(str(self.paths[0]))}", "name two files")
        for path in self.paths:
            if path.is_dir():
                raise UsageError(f"{quote(str(path))} is a folder", "name a file")
            if not path.parent.is_dir():
                raise MissingFile(f"there is no folder {quote(str(path.parent))}", "create it, or name another one")

    def write(self, trace: Trace, settings: Settings, target: Target) -> None:
        """Write the requested files.

        Raises:
            UsageError: one can't be written.
        """
        if self.snapshot is not None:
            snapshot = memory_snapshot(trace, settings, target)
            _write(Path(self.snapshot), lambda file: pickle.dump(snapshot, file, protocol=_PICKLE_PROTOCOL))
        if self.trace is not None:
            text = json.dumps(chrome_trace(trace, settings, target), separators=(",", ":"))
            _write(Path(self.trace), lambda file: file.write(text.encode()))


def _write(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    try:
        write_atomically(path, write, fsync=False)
    except OSError as error:
        raise UsageError(f"{quote(str(path))} can't be written ({error.strerror})", "name another file") from None
