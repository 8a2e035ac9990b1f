"""How headers get into the rows of an index."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ._files import Entry, sort_key
from ._row import RECORD, fill
from ._stored import Stored
from .headers import Header, UnreadableImage, read_header

_CHUNK = 512
_TASK = 64  # files that a thread takes at a time
_READERS = 4  # headers wait for the disk more than for the processor


class Earlier(Protocol):
    """An index that was saved before."""

    stored: Stored

    def find(self, name: bytes) -> int | None:
        """The row of a file; None when it has none."""
        ...


class Walked:
    """One of a folder: its names, and those that are asked for, are sorted alike."""

    def __init__(self, stored: Stored) -> None:
        self.stored, self._next = stored, 0

    def find(self, name: bytes) -> int | None:
        """The row of a file; those before it are gone."""
        key, count = sort_key(name), len(self.stored.records)
        while self._next < count and sort_key(self.stored.name(self._next)) < key:
            self._next += 1
        if self._next >= count or self.stored.name(self._next) != name:
            return None
        self._next += 1
        return self._next - 1


class Listed:
    """One of a list of files: most often the same list again, in the same order."""

    def __init__(self, stored: Stored) -> None:
        self.stored, self._next = stored, 0
        self._rows: dict[bytes, int] | None = None  # made only when the lists differ

    def find(self, name: bytes) -> int | None:
        """The row of a file."""
        if self._next < len(self.stored.records) and self.stored.name(self._next) == name:
            self._next += 1
            return self._next - 1
        if self._rows is None:
            self._rows = {self.stored.name(row): row for row in range(len(self.stored.records))}
        found = self._rows.get(name)
        if found is not None:
            self._next = found + 1
        return found


class Builder:
    """Collects rows and names; rows of an earlier index are taken over where size and time haven't changed."""

    def __init__(self, earlier: Earlier | None = None) -> None:
        self._earlier = earlier
        self._rows: list[NDArray[Any]] = []
        self._names = bytearray()
        self._offsets: list[NDArray[np.int64]] = []
        reasons = earlier.stored.reasons if earlier is not None else ()
        self._reasons: dict[str, int] = {reason: code for code, reason in enumerate(reasons, 1)}
        self._changed, self._place = earlier is None, 0

    @property
    def unchanged(self) -> bool:
        """Whether every row was taken over from its own place, and none was left."""
        return not self._changed and self._earlier is not None and self._place == len(self._earlier.stored.records)

    def read_all(self, entries: Iterable[Entry], root: bytes, told: Callable[[int], None]) -> None:
        """Add files; headers are read by a few threads, rows stay in order."""
        done = 0
        source: Iterator[Entry] = iter(entries)
        with ThreadPoolExecutor(_READERS) as pool:
            while chunk := list(islice(source, _CHUNK)):
                self._add(chunk, root, pool)
                done += len(chunk)
                told(done)

    def _add(self, chunk: list[Entry], root: bytes, pool: ThreadPoolExecutor) -> None:
        rows = np.zeros(len(chunk), RECORD)
        fresh = []
        for number, entry in enumerate(chunk):
            old = self._old(entry)
            if old is not None:
                rows[number] = old
            elif entry.reason is not None:
                rows[number]["reason"] = self._code(entry.reason)
                self._changed = True
            else:
                fresh.append(number)
        names = [os.fsdecode(os.path.join(root, chunk[number].name)) for number in fresh]  # noqa: PTH118
        some = [names[start : start + _TASK] for start in range(0, len(names), _TASK)]
        outcomes = chain.from_iterable(pool.map(_outcomes, some))
        for number, outcome in zip(fresh, outcomes, strict=True):
            if isinstance(outcome, Header):
                fill(rows[number], outcome)
            else:
                rows[number]["reason"] = self._code(outcome)
                # Changed files are found by size and time, broken ones too.
                rows[number]["size"], rows[number]["mtime_ns"] = chunk[number].status or (0, 0)
        self._changed |= bool(fresh)
        self._rows.append(rows)
        lengths = np.array([len(entry.name) for entry in chunk], np.int64)
        self._offsets.append(np.cumsum(lengths) + len(self._names))
        self._names += b"".join(entry.name for entry in chunk)

    def _old(self, entry: Entry) -> Any:
        """The saved row of a file that hasn't changed."""
        if self._earlier is None:
            return None
        found = self._earlier.find(entry.name)
        self._changed |= found != self._place
        self._place += 1
        if found is None:
            return None
        row = self._earlier.stored.records[found]
        return row if (int(row["size"]), int(row["mtime_ns"])) == entry.status else None

    def _code(self, reason: str) -> int:
        return self._reasons.setdefault(reason, len(self._reasons) + 1)

    def stored(self, root: bytes) -> Stored:
        """What was collected, packed."""
        return Stored(
            records=np.concatenate(self._rows) if self._rows else np.zeros(0, RECORD),
            offsets=np.concatenate([np.zeros(1, np.int64), *self._offsets]),
            names=np.frombuffer(bytes(self._names), np.uint8),
            reasons=tuple(self._reasons),
            root=root,
        )


def _outcomes(paths: list[str]) -> list[Header | str]:
    return [_outcome(path) for path in paths]


def _outcome(path: str) -> Header | str:
    try:
        return read_header(path)
    except UnreadableImage as broken:
        return broken.why
