"""Building an index: reads headers, and reuses the records of a previous index for unchanged files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ._image_files import ImageFile, sort_key
from ._index_arrays import IndexArrays
from ._index_record import RECORD, write_header
from .headers import Header, UnreadableImage, read_header

_CHUNK_FILES = 512
_TASK_FILES = 64  # files per task of a thread
_READER_THREADS = 4  # reading headers is limited by the disk, not by the CPU


class PreviousIndex(Protocol):
    """A saved index in which unchanged files are looked up."""

    arrays: IndexArrays

    def find(self, name: bytes) -> int | None:
        """Return the row of a file; None if it is not in the index."""
        ...


class FolderIndex:
    """A saved index of a folder; its names, and the names that are looked up, are in the order of the walk."""

    def __init__(self, arrays: IndexArrays) -> None:
        self.arrays, self._next_row = arrays, 0

    def find(self, name: bytes) -> int | None:
        """Return the row of a file, skipping rows of files that no longer exist; None if it is not in the index."""
        key, count = sort_key(name), len(self.arrays.records)
        while self._next_row < count and sort_key(self.arrays.name(self._next_row)) < key:
            self._next_row += 1
        if self._next_row >= count or self.arrays.name(self._next_row) != name:
            return None
        self._next_row += 1
        return self._next_row - 1


class ListIndex:
    """A saved index of a list of files; usually the same list is looked up again in the same order."""

    def __init__(self, arrays: IndexArrays) -> None:
        self.arrays, self._next_row = arrays, 0
        self._rows: dict[bytes, int] | None = None  # filled only if the lists differ

    def find(self, name: bytes) -> int | None:
        """Return the row of a file; None if it is not in the index."""
        if self._next_row < len(self.arrays.records) and self.arrays.name(self._next_row) == name:
            self._next_row += 1
            return self._next_row - 1
        if self._rows is None:
            self._rows = {self.arrays.name(row): row for row in range(len(self.arrays.records))}
        row = self._rows.get(name)
        if row is not None:
            self._next_row = row + 1
        return row


class IndexBuilder:
    """Collects records and names of files; takes records of unchanged files from a previous index."""

    def __init__(self, previous: PreviousIndex | None = None) -> None:
        self._previous = previous
        self._records: list[NDArray[Any]] = []
        self._names = bytearray()
        self._offsets: list[NDArray[np.int64]] = []
        reasons = previous.arrays.reasons if previous is not None else ()
        self._reasons: dict[str, int] = {reason: code for code, reason in enumerate(reasons, 1)}
        self._changed, self._row = previous is None, 0

    @property
    def unchanged(self) -> bool:
        """True if every file has the same row and record as in the previous index."""
        return not self._changed and self._previous is not None and self._row == len(self._previous.arrays.records)

    def add_files(self, files: Iterable[ImageFile], root: bytes, on_progress: Callable[[int], None]) -> None:
        """Add files in order; their headers are read by a few threads."""
        done = 0
        iterator: Iterator[ImageFile] = iter(files)
        with ThreadPoolExecutor(_READER_THREADS) as pool:
            while chunk := list(islice(iterator, _CHUNK_FILES)):
                self._add_chunk(chunk, root, pool)
                done += len(chunk)
                on_progress(done)

    def _add_chunk(self, chunk: list[ImageFile], root: bytes, pool: ThreadPoolExecutor) -> None:
        records = np.zeros(len(chunk), RECORD)
        unread = []
        for position, file in enumerate(chunk):
            record = self._unchanged_record(file)
            if record is not None:
                records[position] = record
            elif file.reason is not None:
                records[position]["reason"] = self._reason_code(file.reason)
                self._changed = True
            else:
                unread.append(position)
        paths = [os.fsdecode(os.path.join(root, chunk[position].name)) for position in unread]  # noqa: PTH118
        tasks = [paths[start : start + _TASK_FILES] for start in range(0, len(paths), _TASK_FILES)]
        results = chain.from_iterable(pool.map(_read_headers, tasks))
        for position, result in zip(unread, results, strict=True):
            if isinstance(result, Header):
                write_header(records[position], result)
            else:
                records[position]["reason"] = self._reason_code(result)
                # Unreadable files are also read again only after their size or time changes.
                records[position]["file_size"], records[position]["mtime_ns"] = chunk[position].status or (0, 0)
        self._changed |= bool(unread)
        self._records.append(records)
        lengths = np.array([len(file.name) for file in chunk], np.int64)
        self._offsets.append(np.cumsum(lengths) + len(self._names))
        self._names += b"".join(file.name for file in chunk)

    def _unchanged_record(self, file: ImageFile) -> Any:
        if self._previous is None:
            return None
        row = self._previous.find(file.name)
        self._changed |= row != self._row
        self._row += 1
        if row is None:
            return None
        record = self._previous.arrays.records[row]
        return record if (int(record["file_size"]), int(record["mtime_ns"])) == file.status else None

    def _reason_code(self, reason: str) -> int:
        return self._reasons.setdefault(reason, len(self._reasons) + 1)

    def build(self, root: bytes) -> IndexArrays:
        """Pack everything that was added."""
        return IndexArrays(
            records=np.concatenate(self._records) if self._records else np.zeros(0, RECORD),
            offsets=np.concatenate([np.zeros(1, np.int64), *self._offsets]),
            names=np.frombuffer(bytes(self._names), np.uint8),
            reasons=tuple(self._reasons),
            root=root,
        )


def _read_headers(paths: list[str]) -> list[Header | str]:
    return [_header_or_reason(path) for path in paths]


def _header_or_reason(path: str) -> Header | str:
    try:
        return read_header(path)
    except UnreadableImage as error:
        return error.why
