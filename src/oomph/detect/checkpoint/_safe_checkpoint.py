"""Checkpoint files read as data.

A torch file is a zip of raw storages and a pickle that describes the objects they belong to. The pickle is read by
`safe_unpickle`, which executes nothing; the zip's checksums are verified.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...errors import MissingFile, UsageError
from ...units import MIB
from ._safe_unpickle import LazyTensor, RejectedPickle, first_words, safe_unpickle

_MAX_PICKLE_BYTES = 64 * MIB  # pickles of real checkpoints are below one MiB
_FIX_UNSAFE = "get the weights from their original source instead"


class SafeCheckpoint:
    """An open checkpoint: `content` describes its objects, `tensor` loads one of its tensors."""

    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        self._path, self._archive = path, archive
        self._prefix = self._find_prefix()
        self._check_byte_order()
        self.content = safe_unpickle(self._read("data.pkl", _MAX_PICKLE_BYTES))

    def tensor(self, lazy: LazyTensor) -> Tensor:
        """Load a tensor; the zip's checksum is verified."""
        _check_bounds(lazy)
        size = lazy.elements * lazy.dtype.itemsize
        raw = self._read(f"data/{lazy.key}", size)
        if len(raw) != size:
            raise RejectedPickle(f"has {len(raw)} bytes instead of {size} in the storage {lazy.key}")
        if not size:
            return torch.empty(lazy.shape, dtype=lazy.dtype)
        storage = torch.frombuffer(bytearray(raw), dtype=lazy.dtype)
        return storage.as_strided(lazy.shape, lazy.stride, lazy.offset).clone()

    def _find_prefix(self) -> str:
        names = [name for name in self._archive.namelist() if name.count("/") == 1 and name.endswith("/data.pkl")]
        if len(names) != 1:
            raise RejectedPickle("is a zip file but not a torch checkpoint")
        return names[0].removesuffix("data.pkl")

    def _check_byte_order(self) -> None:
        if f"{self._prefix}byteorder" in self._archive.namelist() and self._read("byteorder", 16) != b"little":
            raise RejectedPickle("was written on a big-endian machine")

    def _read(self, name: str, max_bytes: int) -> bytes:
        try:
            entry = self._archive.getinfo(self._prefix + name)
        except KeyError:
            raise RejectedPickle(f"has no entry {name}") from None
        if entry.compress_type != zipfile.ZIP_STORED or entry.file_size > max_bytes:
            raise RejectedPickle(f"has an entry {name} that is compressed or too large")
        return self._archive.read(entry)


@contextmanager
def open_checkpoint(path: Path) -> Iterator[SafeCheckpoint]:
    """Open a checkpoint without executing anything from it.

    Raises:
        MissingFile: the file doesn't exist.
        UsageError: it isn't a checkpoint, is damaged, or tries to execute code.
    """
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except FileNotFoundError:
        raise MissingFile(f"there is no file '{path}'", "check the path") from None
    except OSError as error:
        raise UsageError(f"{path} can't be read ({error.strerror})", "pass a checkpoint file") from None
    if magic != b"PK\x03\x04":
        raise UsageError(
            f"{path} is not in the zip format that torch writes since version 1.6",
            "load and save it again with a recent torch, on a machine that trusts it",
        )
    try:
        with zipfile.ZipFile(path) as archive:
            yield SafeCheckpoint(path, archive)
    except RejectedPickle as rejected:
        raise UsageError(f"{path} {rejected}", _FIX_UNSAFE) from None
    except RecursionError:
        raise UsageError(f"{path} contains endlessly nested objects", _FIX_UNSAFE) from None
    except (zipfile.BadZipFile, EOFError, OSError) as error:
        raise UsageError(f"{path} is damaged ({first_words(error)})", "copy or download it again") from None


def read_checkpoint(path: Path) -> Any:
    """Read a file of plain containers and tensors; checksums are verified and nothing is executed.

    Raises:
        MissingFile: the file doesn't exist.
        UsageError: it is damaged or contains other objects.
    """
    with open_checkpoint(path) as checkpoint:
        return _load_tensors(checkpoint, checkpoint.content, {})


def _load_tensors(checkpoint: SafeCheckpoint, value: Any, loaded: dict[int, Any]) -> Any:
    """Return plain content with its tensors loaded; shared objects are loaded once."""
    if id(value) not in loaded:
        loaded[id(value)] = _load_value(checkpoint, value, loaded)
    return loaded[id(value)]


def _load_value(checkpoint: SafeCheckpoint, value: Any, loaded: dict[int, Any]) -> Any:
    if isinstance(value, LazyTensor):
        return checkpoint.tensor(value)
    if isinstance(value, dict):
        return {key: _load_tensors(checkpoint, item, loaded) for key, item in value.items()}
    if isinstance(value, list):
        return [_load_tensors(checkpoint, item, loaded) for item in value]
    if isinstance(value, tuple):
        return tuple(_load_tensors(checkpoint, item, loaded) for item in value)
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        return value
    name = getattr(value, "origin", type(value).__name__)
    raise UsageError(f"the file contains a {name}, not only plain data", "save plain tensors and containers")


def _check_bounds(lazy: LazyTensor) -> None:
    """Reject a tensor outside of its storage, or larger than it: a stride of 0 would turn a byte into terabytes."""
    last = lazy.offset + sum((side - 1) * step for side, step in zip(lazy.shape, lazy.stride, strict=True))
    count = math.prod(lazy.shape)
    if count and (last >= lazy.elements or count > lazy.elements):
        raise RejectedPickle("has a tensor that lies outside its storage")
