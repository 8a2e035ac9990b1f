"""The history of GPU memory, written to a file when memory runs out.

Torch records every allocation and free with its Python stack. At an out-of-memory error the guard writes the recording
while the failed attempt's tensors are still alive. Torch's tools show it: pytorch.org/memory_viz.
"""

from __future__ import annotations

import logging
import os
import pickle
from pathlib import Path
from typing import Literal

import torch
import torch.distributed as dist

from ...errors import UsageError, describe, quote
from ...files import write_atomically

_MAX_ENTRIES = 30_000  # allocations and frees that are kept: the last ten steps of most networks
_MAX_FILES = 5
_PICKLE_PROTOCOL = 4  # the latest that torch's viewer reads
_log = logging.getLogger("oomph")


class NoMemoryHistory:
    """A run whose memory is not recorded."""

    def dump(self, step: int) -> Path | None:
        """Write nothing."""
        del step
        return None

    def close(self) -> None:
        """Stop nothing."""


class MemoryHistory(NoMemoryHistory):
    """Records the memory of a run, and writes what it recorded.

    A recording that the user started before is used as it is.

    Args:
        folder: where the files go.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files = 0
        self._starts = not torch._C._cuda_isHistoryEnabled()  # noqa: SLF001  torch has no public function
        if self._starts:
            _record(context="alloc", stacks="python", max_entries=_MAX_ENTRIES)

    def dump(self, step: int) -> Path | None:
        """Write the recording, and return the file; None if there are enough files, or if it can't be written."""
        if self._files >= _MAX_FILES:
            return None
        self._files += 1
        try:
            snapshot = torch.cuda.memory._snapshot()  # noqa: SLF001  torch has no public function
            path = self._new_path(step)
            write_atomically(path, lambda file: pickle.dump(snapshot, file, protocol=_PICKLE_PROTOCOL), fsync=False)
        except Exception as error:  # noqa: BLE001  a run must not fail because its recording can't be written
            _log.warning("The memory snapshot could not be written to %s: %s.", self._folder, describe(error))
            return None
        last = f" It is the last of {_MAX_FILES}." if self._files == _MAX_FILES else ""
        _log.warning("Wrote the memory snapshot %s.%s", path, last)
        return path

    def close(self) -> None:
        """Stop the recording if the guard started it."""
        if self._starts:
            self._starts = False
            _record(None)

    def _new_path(self, step: int) -> Path:
        rank = dist.get_rank() if dist.is_available() and dist.is_initialized() else 0
        stem = f"step-{step}-rank-{rank}"
        path, number = self._folder / f"{stem}.pickle", 2
        while path.exists():  # of an earlier attempt, or of an earlier run
            path, number = self._folder / f"{stem}-{number}.pickle", number + 1
        return path


def record_memory_history(folder: str | os.PathLike[str] | None, device: torch.device) -> NoMemoryHistory:
    """Start to record the memory of a device, if a folder is given and torch can record it.

    Raises:
        UsageError: the folder can't be created.
    """
    if folder is None:
        return NoMemoryHistory()
    if device.type != "cuda":
        _log.warning("snapshot= records nothing: torch keeps a history of CUDA memory only, and this is %s.", device)
        return NoMemoryHistory()
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"the folder {quote(str(folder))} of snapshot= can't be created ({error.strerror})", "name another one"
        ) from None
    return MemoryHistory(Path(folder))


def _record(enabled: Literal["all"] | None = "all", **options: object) -> None:
    torch.cuda.memory._record_memory_history(enabled, **options)  # noqa: SLF001  torch has no public function
