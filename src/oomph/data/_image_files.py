"""Walks over folders of images in a reproducible order, and the place of a folder's index file."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from .headers import SUFFIXES

_INDEX_NAME = ".oomph-index"
# Formats that can't be decoded. They are listed as skipped instead of being ignored.
_UNSUPPORTED_SUFFIXES = {".heic", ".heif", ".avif", ".jp2", ".jxl", ".psd", ".dng", ".cr2", ".nef"}
_SEPARATOR = os.sep.encode()
FollowLink = Callable[[str, str], bool]


class ImageFile(NamedTuple):
    """A file found by `walk_images`.

    Attributes:
        name: path below the walked folder, as bytes because names need not be valid text.
        status: size and modification time (ns); None if they were not read.
        reason: why the file can't be used; None if nothing is known against it.
    """

    name: bytes
    status: tuple[int, int] | None
    reason: str | None = None


def sort_key(name: bytes) -> bytes:
    """Return the sort key of the walk: the files of a folder come where the name of the folder would."""
    return name.replace(_SEPARATOR, b"\0")


def walk_images(
    folder: str | os.PathLike[str] | bytes,
    *,
    suffixes: Iterable[str] = SUFFIXES | _UNSUPPORTED_SUFFIXES,
    files_first: bool = False,
    check_links: bool = True,
    follow_link: FollowLink | None = None,
) -> Iterator[ImageFile]:
    """Yield the images below a folder, sorted by name; a folder that can't be read is yielded with its reason.

    Args:
        folder: where to start.
        suffixes: lower-case suffixes of the files to yield.
        files_first: yield the files of a folder before those of its subfolders, instead of sorting both together.
        check_links: yield links that leave the folder with a reason. Without it, a link to a file counts as a file,
            wherever it leads.
        follow_link: called with the path and the target of every link to a folder that `check_links` accepts; if it
            returns True, the target is walked too. Links are not followed by default. Every folder is walked once.
    """
    encoded = frozenset(suffix.encode() for suffix in suffixes)
    root = os.fsencode(folder)
    yield from _Walker(root, os.path.realpath(root), encoded, files_first, check_links, follow_link).walk(b"")


@dataclass(frozen=True)
class _Walker:
    root: bytes
    real_root: bytes
    suffixes: frozenset[bytes]
    files_first: bool
    check_links: bool
    follow_link: FollowLink | None
    walked: set[bytes] = field(default_factory=set)  # real paths; filled only if links are followed

    def walk(self, below: bytes) -> Iterator[ImageFile]:
        folder = os.path.join(self.root, below)  # noqa: PTH118  names are bytes
        if self.follow_link is not None:
            real = os.path.realpath(folder)
            if real in self.walked:
                return
            self.walked.add(real)
        try:
            with os.scandir(folder) as scan:
                entries = sorted(scan, key=self._entry_key)
        except OSError as error:
            yield ImageFile(below, (0, 0), f"can't be read: {error.strerror}")
            return
        for entry in entries:
            yield from self._walk_entry(entry, os.path.join(below, entry.name))  # noqa: PTH118

    def _entry_key(self, entry: os.DirEntry[bytes]) -> tuple[bool, bytes]:
        is_folder = _is_folder(entry)
        return self.files_first and is_folder, entry.name + b"\0" if is_folder else entry.name

    def _walk_entry(self, entry: os.DirEntry[bytes], name: bytes) -> Iterator[ImageFile]:
        is_folder = _is_folder(entry)
        if not is_folder and os.path.splitext(entry.name)[1].lower() not in self.suffixes:  # noqa: PTH122
            return
        if entry.is_symlink():
            target = os.path.realpath(entry.path)
            if self.check_links and not _is_inside(target, self.real_root):
                yield ImageFile(name, (0, 0), "a link to a place outside the folder")
                return
            if is_folder and not self._follows(entry.path, target):
                return
        if is_folder:
            yield from self.walk(name)
        else:
            yield _with_status(entry, name)

    def _follows(self, path: bytes, target: bytes) -> bool:
        return self.follow_link is not None and self.follow_link(os.fsdecode(path), os.fsdecode(target))


def _with_status(entry: os.DirEntry[bytes], name: bytes) -> ImageFile:
    try:
        status = entry.stat()
    except OSError as error:
        return ImageFile(name, (0, 0), f"can't be read: {error.strerror}")
    return ImageFile(name, (status.st_size, status.st_mtime_ns))


def _is_folder(entry: os.DirEntry[bytes]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _is_inside(path: bytes, folder: bytes) -> bool:
    return path == folder or path.startswith(folder.rstrip(_SEPARATOR) + _SEPARATOR)


def read_status(name: bytes) -> ImageFile:
    """Return a named file with its size and modification time."""
    try:
        status = os.stat(name)  # noqa: PTH116  names are bytes
    except OSError:
        return ImageFile(name, None)  # reading the header will report the reason
    return ImageFile(name, (status.st_size, status.st_mtime_ns))


def index_path(folder: Path) -> Path | None:
    """Return where the index of a folder is saved: in the folder, or in the user's cache folder if it is read-only."""
    return writable_path(folder / _INDEX_NAME, folder)


def writable_path(path: Path, subject: Path) -> Path | None:
    """Return `path` if it can be written, else a path in the user's cache folder; None if neither can be written.

    Args:
        path: the preferred file.
        subject: the file or folder that it describes, which names the file in the cache folder.
    """
    if os.access(path.parent, os.W_OK | os.X_OK):
        return path
    base = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA")
    cache = Path(base) if base else Path.home() / ".cache"
    digest = hashlib.sha256(os.fsencode(subject.resolve())).hexdigest()[:32]
    fallback = cache / "oomph" / f"index-{digest}"
    try:
        fallback.parent.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return fallback
