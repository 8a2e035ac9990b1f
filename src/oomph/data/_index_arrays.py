"""The arrays of an index, and the file that they are mapped from.

The file contains a magic word, the length of a JSON header, that header, and the arrays, each of them aligned. Nothing
in it is executed, and a damaged file is ignored.
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
from ._index_record import DTYPES, FORMATS, RECORD

_MAGIC = b"oomphix1"
_ALIGNMENT = 64
_MAX_HEADER_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, eq=False)
class IndexArrays:
    """The packed arrays of an index.

    Attributes:
        records: one record per file.
        offsets: start of each name in `names`, and the end of the last one.
        names: all file names, concatenated, as bytes of the file system.
        reasons: texts for the reason numbers of the records, which start at 1.
        root: the folder that the names are relative to; empty for absolute names.
        file: the file that the arrays are mapped from, with its size and modification time.
    """

    records: NDArray[Any]
    offsets: NDArray[np.int64]
    names: NDArray[np.uint8]
    reasons: tuple[str, ...]
    root: bytes
    file: tuple[str, int, int] | None = None

    def name(self, row: int) -> bytes:
        """Return the name of a file, relative to the root."""
        return self.names[self.offsets[row] : self.offsets[row + 1]].tobytes()

    def path(self, row: int) -> str:
        """Return the path of a file."""
        if row < 0:
            row += len(self.records)
        return os.fsdecode(os.path.join(self.root, self.name(row)))  # noqa: PTH118  names are bytes

    def with_root(self, root: bytes) -> IndexArrays:
        """Return the arrays for the same files below another folder."""
        return dataclasses.replace(self, root=root)

    def removing(self, path: Path) -> IndexArrays:
        """Return the arrays, and remove the file at `path` when they are garbage-collected."""
        weakref.finalize(self.records, _remove, str(path), os.getpid())
        return self

    def select(self, rows: NDArray[np.int64]) -> IndexArrays:
        """Return the arrays of some of the files."""
        names = [self.name(int(row)) for row in rows]
        lengths = np.array([0, *map(len, names)], np.int64)
        packed = np.frombuffer(b"".join(names), np.uint8)
        return IndexArrays(self.records[rows], np.cumsum(lengths), packed, self.reasons, self.root)

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        if self.file is not None:
            return _load_mapped, (self.file, self.root)
        return IndexArrays, (self.records, self.offsets, self.names, self.reasons, self.root)


def _load_mapped(file: tuple[str, int, int], root: bytes) -> IndexArrays:
    arrays = load_arrays(Path(file[0]))
    if arrays is None or arrays.file != file:
        raise FileNotFoundError(f"the index {file[0]} changed while workers were starting")
    return arrays.with_root(root)


def _remove(name: str, owner: int) -> None:
    if os.getpid() == owner:  # not in a forked process
        Path(name).unlink(missing_ok=True)


def save_arrays(arrays: IndexArrays, path: Path) -> bool:
    """Write the arrays to a file atomically; return False if the file can't be written."""
    header = json.dumps(
        {
            "count": len(arrays.records),
            "names": len(arrays.names),
            "row": arrays.records.dtype.itemsize,
            "reasons": arrays.reasons,
            "root": os.fsdecode(arrays.root),
        },
    ).encode("utf-8", "surrogateescape" if os.name != "nt" else "surrogatepass")

    def write(file: IO[bytes]) -> None:
        file.write(_MAGIC + len(header).to_bytes(8, "little") + header)
        for array in (arrays.records, arrays.offsets, arrays.names):
            file.write(b"\0" * (-file.tell() % _ALIGNMENT))
            file.write(np.ascontiguousarray(array).data)

    try:
        write_atomically(path, write)
    except OSError:
        return False
    return True


def load_arrays(path: Path) -> IndexArrays | None:
    """Map the arrays of a file; None if the file is missing or damaged."""
    try:
        status = path.stat()
        with path.open("rb") as file:
            if file.read(8) != _MAGIC:
                return None
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(min(length, _MAX_HEADER_BYTES)))
        count, name_bytes = int(header["count"]), int(header["names"])
        reasons, root = tuple(str(reason) for reason in header["reasons"]), os.fsencode(header["root"])
        if header["row"] != RECORD.itemsize or min(count, name_bytes) < 0:
            return None
        mapped: list[NDArray[Any]] = []
        offset = 16 + length
        for dtype, items in ((RECORD, count), (np.dtype("<i8"), count + 1), (np.dtype("u1"), name_bytes)):
            offset += -offset % _ALIGNMENT
            mapped.append(np.asarray(np.memmap(path, dtype, "r", offset, (items,))) if items else np.zeros(0, dtype))
            offset += dtype.itemsize * items
    except (OSError, ValueError, KeyError, TypeError):
        return None
    records, offsets, names = mapped
    arrays = IndexArrays(records, offsets, names, reasons, root, (str(path), status.st_size, status.st_mtime_ns))
    return arrays if _is_valid(arrays) else None


def _is_valid(arrays: IndexArrays) -> bool:
    """Return True if no number in a file points outside its arrays, because the file is not trusted."""
    offsets, records = arrays.offsets, arrays.records
    if offsets[0] != 0 or offsets[-1] != len(arrays.names) or bool(np.any(np.diff(offsets) < 0)):
        return False
    if len(records) and records["reason"].max() > len(arrays.reasons):
        return False
    usable = records[records["reason"] == 0]
    if not len(usable):
        return True
    positive = ("format", "orientation", "width", "height", "bands")
    return bool(
        all(usable[field].min() > 0 for field in positive)
        and usable["format"].max() < len(FORMATS)
        and usable["dtype"].max() < len(DTYPES)
        and usable["orientation"].max() <= 8  # noqa: PLR2004  EXIF's range
        and usable["coefficient_bytes"].min() >= 0
    )
