"""Every image of a data set by its header, in packed arrays.

Python lists of names and headers grow in every forked worker, because reading an object writes its reference count, and
are copied into every spawned one. Here everything is a handful of numpy arrays, mapped from one file.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import MissingFile, UsageError
from ._files import Entry, listed, place_for, walk, writable
from ._records import Builder, Listed, Walked
from ._row import header_of
from ._stored import Stored, load, save
from .headers import Header

Progress = Callable[[int, "int | None"], None]
Name = str | os.PathLike[str]
_SMALL = 1024  # rows that may travel in a pickle


@dataclass(frozen=True)
class SkippedImage:
    """A file that is not used, and why."""

    path: str
    reason: str


class ImageIndex:
    """The images of a data set, from their headers alone; nothing is decoded.

    `ImageIndex.open(folder)` walks a folder and keeps the index beside the images, or in the user's cache folder when
    that is read-only; the next time only files that changed are read. `ImageIndex.of(files)` takes any files.

    An index is a value: it has a length, `index[i]` is a Header, `index.path(i)` its file, and `index.skipped()` lists
    the files that can't be used, each with its reason.
    """

    def __init__(self, stored: Stored) -> None:
        self._stored = stored

    @classmethod
    def of(cls, files: Iterable[Name], *, progress: Progress | None = None, keep: Name | None = None) -> ImageIndex:
        """Read the headers of the named files, in their order.

        Args:
            files: their names.
            progress: called with the number of files done and, when known, of all files.
            keep: a file to save the index in, and to take it from where files haven't changed; in the user's cache
                folder when it can't be written.
        """
        total = len(files) if isinstance(files, Sized) else None
        place = writable(Path(keep), Path(keep)) if keep is not None else None
        saved = load(place) if place is not None else None
        builder = Builder(Listed(saved) if saved is not None else None)
        entry = listed if place is not None else _named
        builder.read_all((entry(os.fsencode(name)) for name in files), b"", _told(progress, total))
        return cls(_kept(builder, saved, place, b""))

    @classmethod
    def open(cls, folder: Name, *, progress: Progress | None = None, keep: bool = True) -> ImageIndex:
        """Read the headers of all images in a folder and the folders below it.

        Args:
            folder: where the images are.
            progress: called with the number of files done and, when known, of all files.
            keep: save the index and use the saved one where files haven't changed.

        Raises:
            MissingFile: there is no such folder.
        """
        root = Path(folder)
        if not root.is_dir():
            raise MissingFile(f"there is no folder {str(root)!r}", "name the folder that holds the images")
        place = place_for(root) if keep else None
        saved = load(place) if place is not None else None
        builder, prefix = Builder(Walked(saved) if saved is not None else None), os.fsencode(root)
        builder.read_all(walk(prefix), prefix, _told(progress, len(saved.records) if saved else None))
        return cls(_kept(builder, saved, place, prefix))

    def __len__(self) -> int:
        return len(self._stored.records)

    def __getitem__(self, index: int) -> Header:
        return header_of(self._stored.records[index])

    def __iter__(self) -> Iterator[Header]:
        return (self[index] for index in range(len(self)))

    def __repr__(self) -> str:
        return f"<ImageIndex of {len(self)} files, {len(self) - len(self.usable)} set aside>"

    def path(self, index: int) -> str:
        """The file of an image."""
        return self._stored.path(int(index))

    def paths(self) -> Iterator[str]:
        """All files, in order."""
        return (self.path(index) for index in range(len(self)))

    @property
    def records(self) -> NDArray[Any]:
        """One row a file, as a structured array that can't be written to."""
        return self._stored.records

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays, in memory or mapped."""
        return self._stored.records.nbytes + self._stored.offsets.nbytes + self._stored.names.nbytes

    @property
    def usable(self) -> NDArray[np.int64]:
        """The images that have no reason to be set aside."""
        return np.flatnonzero(self._stored.records["reason"] == 0)

    def reason(self, index: int) -> str | None:
        """Why a file is set aside; None when it isn't."""
        code = int(self._stored.records["reason"][index])
        return self._stored.reasons[code - 1] if code else None

    def skipped(self) -> list[SkippedImage]:
        """The files that can't be used, each with its reason."""
        rows = np.flatnonzero(self._stored.records["reason"])
        return [SkippedImage(self.path(row), str(self.reason(row))) for row in rows.tolist()]

    def select(self, indices: Iterable[int] | NDArray[np.int64]) -> ImageIndex:
        """An index of some of these images, in the order given."""
        rows = np.asarray(list(indices) if not isinstance(indices, np.ndarray) else indices, dtype=np.int64)
        return ImageIndex(self._stored.select(rows))

    def save(self, path: Name) -> Path:
        """Write the index to a file, atomically.

        Raises:
            UsageError: the file can't be written.
        """
        place = Path(path)
        if not save(self._stored, place):
            raise UsageError(f"the index can't be written to {str(place)!r}", "name a file in a folder with space")
        return place

    @classmethod
    def load(cls, path: Name) -> ImageIndex:
        """Map a saved index; the images are not looked at.

        Raises:
            MissingFile: there is no such index, or it is damaged.
        """
        stored = load(Path(path))
        if stored is None:
            raise MissingFile(f"{str(path)!r} holds no index", "make one with ImageIndex.open(folder)")
        return cls(stored)

    def shared(self) -> ImageIndex:
        """The same index, mapped from a file, so that its pickle is a file name; the file goes with the process."""
        if self._stored.file is not None or len(self) <= _SMALL:
            return self
        handle, name = tempfile.mkstemp(prefix="oomph-index-")
        os.close(handle)
        place = Path(name)
        if not save(self._stored, place):
            return self
        return ImageIndex((load(place) or self._stored).at(self._stored.root).owning(place))


def index_of(source: ImageIndex | Name | Iterable[Name], progress: Progress | None = None) -> ImageIndex:
    """An index of whatever a user calls a data set: an index, a folder, a file, a list of files."""
    if isinstance(source, ImageIndex):
        return source
    if isinstance(source, (str, os.PathLike)):
        if Path(source).is_dir():
            return ImageIndex.open(source, progress=progress)
        if not Path(source).exists():
            raise MissingFile(f"there is no file or folder {str(source)!r}", "name images or a folder of them")
        source = [source]
    return ImageIndex.of(source, progress=progress)


def _named(name: bytes) -> Entry:
    return Entry(name, None)


def _kept(builder: Builder, saved: Stored | None, place: Path | None, root: bytes) -> Stored:
    """What was saved, where nothing changed; else what was built, saved in its place."""
    if saved is not None and builder.unchanged:
        return saved.at(root)
    stored = builder.stored(root)
    if place is not None and save(stored, place):
        return (load(place) or stored).at(root)
    return stored


def _told(progress: Progress | None, total: int | None) -> Callable[[int], None]:
    if progress is None:
        return lambda _: None
    return lambda done: progress(done, total)
