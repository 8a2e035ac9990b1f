"""The arrays of an index, and the file they are mapped from.

The file is a magic word, the length of a JSON header, that header, and the arrays one after another, each aligned.
Nothing in it is executed, and a damaged one counts as none.
"""

from __future__ import annotations

import dataclasses
import json
import os
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from ..files import write_atomically
from ._row import DTYPES, FORMATS, RECORD

_MAGIC = b"oomphix1"
_ALIGN = 64
_LONGEST = 64 * 1024 * 1024


@dataclass(frozen=True, eq=False)
class Stored:
    """The packed arrays of an index.

    Attributes:
        records: one row a file.
        offsets: where each name starts in `names`, and where the last ends.
        names: all names, one after another, as the file system writes them.
        reasons: what the rows' reason numbers, from 1, mean.
        root: the folder that names are below; empty when they stand for themselves.
        file: where the arrays are mapped from, with its size and time of change.
    """

    records: NDArray[Any]
    offsets: NDArray[np.int64]
    names: NDArray[np.uint8]
    reasons: tuple[str, ...]
    root: bytes
    file: tuple[str, int, int] | None = None

    def name(self, row: int) -> bytes:
        """The name of a file, below the root."""
        return self.names[self.offsets[row] : self.offsets[row + 1]].tobytes()

    def path(self, row: int) -> str:
        """The whole name of a file."""
        if row < 0:
            row += len(self.records)
        return os.fsdecode(os.path.join(self.root, self.name(row)))  # noqa: PTH118  names may be no text

    def at(self, root: bytes) -> Stored:
        """The same files below another folder."""
        return dataclasses.replace(self, root=root)

    def owning(self, place: Path) -> Stored:
        """The same, removing its file when the arrays are gone."""
        weakref.finalize(self.records, _remove, str(place), os.getpid())
        return self

    def select(self, rows: NDArray[np.int64]) -> Stored:
        """Some of the files."""
        names = [self.name(int(row)) for row in rows]
        lengths = np.array([0, *map(len, names)], np.int64)
        return Stored(
            self.records[rows], np.cumsum(lengths), np.frombuffer(b"".join(names), np.uint8), self.reasons, self.root
        )

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        if self.file is not None:
            return _mapped, (self.file, self.root)
        return Stored, (self.records, self.offsets, self.names, self.reasons, self.root)


def _mapped(file: tuple[str, int, int], root: bytes) -> Stored:
    stored = load(Path(file[0]))
    if stored is None or stored.file != file:
        raise FileNotFoundError(f"the index {file[0]} changed while workers were started")
    return stored.at(root)


def _remove(name: str, owner: int) -> None:
    if os.getpid() == owner:
        Path(name).unlink(missing_ok=True)


def save(stored: Stored, place: Path) -> bool:
    """Write the arrays to a file that appears whole or not at all; False when that isn't possible."""
    arrays = (stored.records, stored.offsets, stored.names)
    head = json.dumps(
        {
            "count": len(stored.records),
            "names": len(stored.names),
            "row": stored.records.dtype.itemsize,
            "reasons": stored.reasons,
            "root": os.fsdecode(stored.root),
        },
    ).encode("utf-8", "surrogateescape" if os.name != "nt" else "surrogatepass")

    def write(file: IO[bytes]) -> None:
        file.write(_MAGIC + len(head).to_bytes(8, "little") + head)
        for array in arrays:
            file.write(b"\0" * (-file.tell() % _ALIGN))
            file.write(np.ascontiguousarray(array).data)

    try:
        write_atomically(place, write)
    except OSError:
        return False
    return True


def load(place: Path) -> Stored | None:
    """Map the arrays of a file; None when it isn't there or isn't whole."""
    try:
        status = place.stat()
        with place.open("rb") as file:
            if file.read(8) != _MAGIC:
                return None
            length = int.from_bytes(file.read(8), "little")
            head = json.loads(file.read(min(length, _LONGEST)))
        count, names = int(head["count"]), int(head["names"])
        reasons, root = tuple(str(reason) for reason in head["reasons"]), os.fsencode(head["root"])
        shapes = ((RECORD, count), (np.dtype("<i8"), count + 1), (np.dtype("u1"), names))
        if head["row"] != RECORD.itemsize or min(count, names) < 0:
            return None
        arrays, at = [], 16 + length
        for dtype, many in shapes:
            at += -at % _ALIGN
            arrays.append(_map(place, dtype, at, many))
            at += dtype.itemsize * many
    except (OSError, ValueError, KeyError, TypeError):
        return None
    stored = Stored(arrays[0], arrays[1], arrays[2], reasons, root, (str(place), status.st_size, status.st_mtime_ns))
    return stored if _sound(stored) else None


def _map(place: Path, dtype: np.dtype[Any], at: int, many: int) -> NDArray[Any]:
    if not many:
        return np.zeros(0, dtype)
    return np.asarray(np.memmap(place, dtype, "r", at, (many,)))


def _sound(stored: Stored) -> bool:
    """Whether no number in a file leads out of its arrays, so that whoever wrote it can't harm."""
    offsets, rows = stored.offsets, stored.records
    if offsets[0] != 0 or offsets[-1] != len(stored.names) or bool(np.any(np.diff(offsets) < 0)):
        return False
    used = rows[rows["reason"] == 0]
    if len(rows) and rows["reason"].max() > len(stored.reasons):
        return False
    return not len(used) or bool(
        used["format"].max() < len(FORMATS)
        and used["format"].min() > 0
        and used["dtype"].max() < len(DTYPES)
        and used["orientation"].max() <= 8  # noqa: PLR2004  EXIF's
        and min(used["orientation"].min(), used["width"].min(), used["height"].min(), used["bands"].min()) > 0
        and used["coefficients"].min() >= 0
    )
