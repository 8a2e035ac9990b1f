"""`ImageIndex`: the headers of all images of a dataset in packed arrays.

Python lists of names and headers grow in every forked worker, because reading an object writes its reference count,
and are copied into every spawned worker. An index is a few NumPy arrays, mapped from one file.
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
from ._image_files import ImageFile, index_path, read_status, walk_images, writable_path
from ._index_arrays import IndexArrays, load_arrays, save_arrays
from ._index_builder import FolderIndex, IndexBuilder, ListIndex
from ._index_record import to_header
from .headers import Header

Progress = Callable[[int, "int | None"], None]
Name = str | os.PathLike[str]
_MAX_PICKLED_ROWS = 1024


@dataclass(frozen=True)
class SkippedImage:
    """An image file that is not used, and the reason."""

    path: str
    reason: str


class ImageIndex:
    """The images of a dataset, described by their headers. No pixels are decoded.

    `ImageIndex.open(folder)` walks a folder and saves the index next to the images, or in the user's cache folder if
    the folder is read-only. The next call reads only files that changed. `ImageIndex.of(files)` accepts any files.

    An index is immutable: `len(index)`, `index[i]` (a Header), `index.path(i)`, and `index.skipped()` for the files
    that can't be used.
    """

    def __init__(self, arrays: IndexArrays) -> None:
        self._arrays = arrays

    @classmethod
    def of(cls, files: Iterable[Name], *, progress: Progress | None = None, keep: Name | None = None) -> ImageIndex:
        """Read the headers of the given files, in their order.

        Args:
            files: paths of the images.
            progress: called with the number of files that were read and, if known, the total.
            keep: a file in which the index is saved and reused for unchanged files. If it can't be written, a file in
                the user's cache folder is used instead.
        """
        total = len(files) if isinstance(files, Sized) else None
        path = writable_path(Path(keep), Path(keep)) if keep is not None else None
        saved = load_arrays(path) if path is not None else None
        builder = IndexBuilder(ListIndex(saved) if saved is not None else None)
        names = map(os.fsencode, files)
        named = (read_status(name) if path is not None else ImageFile(name, None) for name in names)
        builder.add_files(named, b"", _progress_callback(progress, total))
        return cls(_save_if_changed(builder, saved, path, b""))

    @classmethod
    def open(cls, folder: Name, *, progress: Progress | None = None, keep: bool = True) -> ImageIndex:
        """Read the headers of all images in a folder and its subfolders.

        Args:
            folder: the folder with the images.
            progress: called with the number of files that were read and, if known, the total.
            keep: save the index, and reuse a saved one for unchanged files.

        Raises:
            MissingFile: the folder does not exist.
        """
        root = Path(folder)
        if not root.is_dir():
            raise MissingFile(f"there is no folder {str(root)!r}", "name the folder that contains the images")
        path = index_path(root) if keep else None
        saved = load_arrays(path) if path is not None else None
        builder, prefix = IndexBuilder(FolderIndex(saved) if saved is not None else None), os.fsencode(root)
        total = len(saved.records) if saved is not None else None
        builder.add_files(walk_images(prefix), prefix, _progress_callback(progress, total))
        return cls(_save_if_changed(builder, saved, path, prefix))

    def __len__(self) -> int:
        return len(self._arrays.records)

    def __getitem__(self, index: int) -> Header:
        return to_header(self._arrays.records[index])

    def __iter__(self) -> Iterator[Header]:
        return (self[index] for index in range(len(self)))

    def __repr__(self) -> str:
        return f"<ImageIndex of {len(self)} files, {len(self) - len(self.usable)} skipped>"

    def path(self, index: int) -> str:
        """Return the path of an image."""
        return self._arrays.path(int(index))

    def paths(self) -> Iterator[str]:
        """Return the paths of all images, in order."""
        return (self.path(index) for index in range(len(self)))

    @property
    def records(self) -> NDArray[Any]:
        """A structured array with one record per file."""
        return self._arrays.records

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays, in memory or mapped."""
        return self._arrays.records.nbytes + self._arrays.offsets.nbytes + self._arrays.names.nbytes

    @property
    def usable(self) -> NDArray[np.int64]:
        """The numbers of the images that are not skipped."""
        return np.flatnonzero(self._arrays.records["reason"] == 0)

    def reason(self, index: int) -> str | None:
        """Return why a file is skipped; None if it is used."""
        code = int(self._arrays.records["reason"][index])
        return self._arrays.reasons[code - 1] if code else None

    def skipped(self) -> list[SkippedImage]:
        """Return the files that can't be used, each with its reason."""
        rows = np.flatnonzero(self._arrays.records["reason"])
        return [SkippedImage(self.path(row), str(self.reason(row))) for row in rows.tolist()]

    def select(self, indices: Iterable[int] | NDArray[np.int64]) -> ImageIndex:
        """Return an index of some of the images, in the given order."""
        rows = np.asarray(list(indices) if not isinstance(indices, np.ndarray) else indices, dtype=np.int64)
        return ImageIndex(self._arrays.select(rows))

    def save(self, path: Name) -> Path:
        """Write the index to a file atomically.

        Raises:
            UsageError: the file can't be written.
        """
        target = Path(path)
        if not save_arrays(self._arrays, target):
            raise UsageError(
                f"the index can't be written to {str(target)!r}", "name a file in a writable folder with free space"
            )
        return target

    @classmethod
    def load(cls, path: Name) -> ImageIndex:
        """Map a saved index, without checking whether the images changed.

        Raises:
            MissingFile: there is no index in the file, or it is damaged.
        """
        arrays = load_arrays(Path(path))
        if arrays is None:
            raise MissingFile(f"{str(path)!r} contains no index", "create one with ImageIndex.open(folder)")
        return cls(arrays)

    def shared(self) -> ImageIndex:
        """Return the index mapped from a file, so that it pickles as a file name; the file is removed with it."""
        if self._arrays.file is not None or len(self) <= _MAX_PICKLED_ROWS:
            return self
        handle, name = tempfile.mkstemp(prefix="oomph-index-")
        os.close(handle)
        path = Path(name)
        if not save_arrays(self._arrays, path):
            return self
        return ImageIndex((load_arrays(path) or self._arrays).with_root(self._arrays.root).removing(path))


def to_index(source: ImageIndex | Name | Iterable[Name], progress: Progress | None = None) -> ImageIndex:
    """Return an index of a folder, a file or a list of files; an index is returned unchanged."""
    if isinstance(source, ImageIndex):
        return source
    if isinstance(source, (str, os.PathLike)):
        if Path(source).is_dir():
            return ImageIndex.open(source, progress=progress)
        if not Path(source).exists():
            raise MissingFile(f"there is no file or folder {str(source)!r}", "name images or a folder of images")
        source = [source]
    return ImageIndex.of(source, progress=progress)


def _save_if_changed(builder: IndexBuilder, saved: IndexArrays | None, path: Path | None, root: bytes) -> IndexArrays:
    """Return the saved arrays if no file changed; otherwise build new ones and save them."""
    if saved is not None and builder.unchanged:
        return saved.with_root(root)
    arrays = builder.build(root)
    if path is not None and save_arrays(arrays, path):
        return (load_arrays(path) or arrays).with_root(root)
    return arrays


def _progress_callback(progress: Progress | None, total: int | None) -> Callable[[int], None]:
    if progress is None:
        return lambda _: None
    return lambda done: progress(done, total)
