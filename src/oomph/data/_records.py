"""How headers get into the rows of an index."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._files import Entry, sort_key
from ._row import RECORD, fill
from ._stored import Stored
from .headers import Broken, Header, read_header

_CHUNK = 512
_TASK = 64  # files that a thread takes at a time
_READERS = 4  # headers wait for the disk more than for the processor


class Builder:
    """Collects rows and names; rows of an earlier index are taken over where size and time haven't changed."""

    def __init__(self, saved: Stored | None = None) -> None:
        self._saved, self._next = saved, 0
        self._rows: list[NDArray[Any]] = []
        self._names = bytearray()
        self._offsets: list[NDArray[np.int64]] = []
        self._reasons: dict[str, int] = {reason: code for code, reason in enumerate(saved.reasons, 1)} if saved else {}
        self._read = 0

    @property
    def unchanged(self) -> bool:
        """Whether every row was taken over and none was left."""
        saved = self._saved
        return saved is not None and not self._read and self._next == len(saved.records) == sum(map(len, self._rows))

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
                self._read += 1
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
        self._read += len(fresh)
        self._rows.append(rows)
        lengths = np.array([len(entry.name) for entry in chunk], np.int64)
        self._offsets.append(np.cumsum(lengths) + len(self._names))
        self._names += b"".join(entry.name for entry in chunk)

    def _old(self, entry: Entry) -> Any:
        """The saved row of a file that hasn't changed; both lists are sorted alike."""
        saved, key = self._saved, sort_key(entry.name)
        if saved is None:
            return None
        while self._next < len(saved.records) and sort_key(saved.name(self._next)) < key:
            self._next += 1
            self._read += 1  # a file that is gone
        if self._next >= len(saved.records) or saved.name(self._next) != entry.name:
            return None
        row = saved.records[self._next]
        self._next += 1
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
    except Broken as broken:
        return broken.why
