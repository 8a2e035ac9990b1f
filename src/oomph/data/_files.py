"""Folders of images: walked in an order that never changes, and where their index is kept."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from .headers import SUFFIXES

_INDEX = ".oomph-index"
# Images that no decoder here reads: they are named, not passed over.
_FOREIGN = {".heic", ".heif", ".avif", ".jp2", ".jxl", ".psd", ".dng", ".cr2", ".nef"}
_IMAGES = frozenset(suffix.encode() for suffix in SUFFIXES | _FOREIGN)


class Entry(NamedTuple):
    """A file below a folder: its name, its size and time of change where they are known, or why it isn't read."""

    name: bytes
    status: tuple[int, int] | None
    reason: str | None = None


def sort_key(name: bytes) -> bytes:
    """Names in the order of the walk: a folder's files come where the folder's name would."""
    return name.replace(os.sep.encode(), b"\0")


def walk(root: bytes) -> Iterator[Entry]:
    """Every image below a folder, sorted by `sort_key`; links that lead out of the folder are named, not followed."""
    yield from _walk(root, b"", os.path.realpath(root))


def _walk(root: bytes, below: bytes, real: bytes) -> Iterator[Entry]:
    folder = os.path.join(root, below)  # noqa: PTH118  bytes: names that are no text exist
    try:
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda entry: entry.name + b"\0" if _is_folder(entry) else entry.name)
    except OSError as error:
        yield Entry(below, (0, 0), f"can't be read: {error.strerror}")
        return
    for entry in entries:
        name = os.path.join(below, entry.name)  # noqa: PTH118
        wanted = os.path.splitext(entry.name)[1].lower() in _IMAGES  # noqa: PTH122
        if entry.is_symlink() and not _inside(os.path.realpath(entry.path), real):
            if wanted or _is_folder(entry):
                yield Entry(name, (0, 0), "a link that leads out of the folder")
        elif _is_folder(entry):
            if not entry.is_symlink():  # a link inside the folder leads to files that are found anyway
                yield from _walk(root, name, real)
        elif wanted:
            yield _entry(entry, name)


def _entry(entry: os.DirEntry[bytes], name: bytes) -> Entry:
    try:
        status = entry.stat()
    except OSError as error:
        return Entry(name, (0, 0), f"can't be read: {error.strerror}")
    return Entry(name, (status.st_size, status.st_mtime_ns))


def _is_folder(entry: os.DirEntry[bytes]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _inside(path: bytes, real: bytes) -> bool:
    return path == real or path.startswith(real.rstrip(os.sep.encode()) + os.sep.encode())


def listed(name: bytes) -> Entry:
    """A file that was named, with its size and time of change."""
    try:
        status = os.stat(name)  # noqa: PTH116  bytes: names that are no text exist
    except OSError:
        return Entry(name, None)  # reading its header will say why
    return Entry(name, (status.st_size, status.st_mtime_ns))


def place_for(folder: Path) -> Path | None:
    """The file that keeps a folder's index: in it, or in the user's cache folder when it can't be written to."""
    return writable(folder / _INDEX, folder)


def writable(place: Path, subject: Path) -> Path | None:
    """A file that can be written: the one that is wanted, or one of the subject's own in the user's cache folder."""
    if os.access(place.parent, os.W_OK | os.X_OK):
        return place
    base = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA")
    cache = Path(base) if base else Path.home() / ".cache"
    name = hashlib.sha256(os.fsencode(subject.resolve())).hexdigest()[:32]
    place = cache / "oomph" / f"index-{name}"
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return place
