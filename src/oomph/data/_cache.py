"""Small decoded copies, kept for the next epoch, for all workers and ranks of a machine.

Each copy is a file of its own, in a folder on a disk or in memory (`/dev/shm`): written under another name and renamed,
with a checksum, so that a crash in the middle leaves nothing that is taken for a copy. When the cap is reached nothing
is added: an epoch goes round, and throwing out the oldest would throw out what is needed soonest.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import shutil
import tempfile
import weakref
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import UsageError
from ..files import write_atomically
from ..units import MIB, parse_size
from ._room import read_resources
from .decoding import Picture, Window
from .headers import Header

_MAGIC = b"oomphpx1"
_SHM = "/dev/shm"  # noqa: S108  the name is the system's
_SAMPLE = 64 * 1024
_HEAD = 8 + 6 * 8 + 4  # magic word, sizes and window, checksum
_REMEMBERED = 50_000  # copies that a process knows to be whole; a few MiB
_LEAVE = 0.1  # of a file system that stays free
_EVERY = 64  # copies after which the machine's memory is looked at again
_RESERVE = 512 * MIB  # of it that copies never take


class Cache:
    """Decoded pictures by what their file holds and how they were decoded.

    Args:
        folder: where they are kept; None is memory, shared by all processes and gone with the one that made it.
        cap: bytes (or "8GiB") that they may take; never more than nine tenths of what is free there and, in memory, of
            what the machine leaves this process.

    Raises:
        UsageError: nothing can be kept there.
    """

    def __init__(self, folder: str | os.PathLike[str] | None, cap: int | str) -> None:
        temporary = folder is None
        if folder is None:
            base = _SHM if os.access(_SHM, os.W_OK) else None
            folder = tempfile.mkdtemp(prefix="oomph-cache-", dir=base)
        self.folder = Path(folder)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            free = shutil.disk_usage(self.folder).free
        except OSError as error:
            raise UsageError(f"nothing can be kept in {str(folder)!r} ({error.strerror})", "name a folder") from None
        with self._locked():
            used = self._clean()
            self._count(used)
        self.in_memory = str(self.folder).startswith(f"{_SHM}/")
        if self.in_memory:
            free = min(free, read_resources().memory)
        self.cap = min(parse_size(cap), used + int(free * (1 - _LEAVE)))
        self._looked, self._room = 0, True
        self._known: dict[tuple[object, ...], Path] = {}
        if temporary:
            weakref.finalize(self, _remove, str(self.folder), os.getpid())

    def picture(self, path: str, header: Header, settings: object, make: Callable[[], Picture]) -> Picture:
        """The kept copy of a picture; made, and kept if there is room, otherwise."""
        name = (path, header.size, header.mtime_ns, settings)
        place, sure = self._known.get(name), True
        if place is None:
            key = _key(path, header, settings)
            place, sure = self.folder / key[:2] / key[2:], False
        kept = _picture(self._bytes(place), sure=sure)
        if kept is None:
            kept = make()
            self._keep(place, kept)
        elif not sure and len(self._known) < _REMEMBERED:
            self._known[name] = place  # read once and found whole: neither file needs to be summed up again
        return kept

    def _bytes(self, place: Path) -> bytes | mmap.mmap | None:
        """What a file holds: looked at where it lies in memory, so that only the parts that are used are touched.

        A file of a disk is read: one that can't be, when it is looked at, ends the process.
        """
        try:
            if not self.in_memory:
                return place.read_bytes()
            with place.open("rb") as file:
                return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError):  # there is none, or it is empty
            return None

    @staticmethod
    def size_of(width: int, height: int) -> int:
        """Bytes that the copy of a picture takes."""
        return _HEAD + width * height * 3

    @property
    def used(self) -> int:
        """Bytes that are taken."""
        try:
            return int((self.folder / "used").read_text() or 0)
        except (OSError, ValueError):
            return 0

    def _keep(self, place: Path, picture: Picture) -> None:
        size = self.size_of(picture.pixels.shape[1], picture.pixels.shape[0])
        try:
            with self._locked():
                if self.used + size > self.cap or place.exists() or not self._has_room():
                    return
                self._count(self.used + size)
            place.parent.mkdir(exist_ok=True)  # not its folder: whoever made the cache may have removed it
            write_atomically(place, lambda file: _write(file, picture), fsync=False, parents=False)
        except OSError:  # a full disk is no reason to stop training
            return

    def _has_room(self) -> bool:
        """Whether the machine still has memory for more; others may have taken it since the cap was set."""
        if self.in_memory and self._looked % _EVERY == 0:
            self._room = read_resources().memory > _RESERVE
        self._looked += 1
        return self._room

    def _clean(self) -> int:
        """Remove what a crash left behind and count the rest."""
        used = 0
        for folder in self.folder.iterdir():
            for entry in folder.iterdir() if folder.is_dir() else ():
                if entry.name.startswith("."):
                    entry.unlink(missing_ok=True)
                else:
                    used += entry.stat().st_size
        return used

    def _count(self, used: int) -> None:
        (self.folder / "used").write_text(str(used))

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """One process at a time; the system lets go of the lock when its holder dies."""
        with (self.folder / "lock").open("a+b") as file:
            _lock(file)
            yield

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return Cache, (str(self.folder), self.cap)


def _lock(file: Any) -> None:
    if os.name == "nt":
        import msvcrt  # noqa: PLC0415  Windows has it

        msvcrt.locking(file.fileno(), 1, 1)  # type: ignore[attr-defined]  # blocking lock of one byte
    else:
        import fcntl  # noqa: PLC0415  everybody else has this

        fcntl.flock(file, fcntl.LOCK_EX)


def _key(path: str, header: Header, settings: object) -> str:
    """A hash of what a file holds (its size, its ends, three places between) and how it is decoded."""
    digest = hashlib.sha256(repr((header.size, settings, header.orientation)).encode())
    with Path(path).open("rb") as file:
        for part in range(5):
            file.seek(max(header.size - _SAMPLE, 0) * part // 4)
            digest.update(file.read(_SAMPLE))
    return digest.hexdigest()


def _write(file: Any, picture: Picture) -> None:
    numbers = np.array([picture.width, picture.height, *picture.pixels.shape[:2], 0, 0], "<i8")
    data = np.ascontiguousarray(picture.pixels)
    file.write(_MAGIC + numbers.tobytes() + zlib.crc32(data.data).to_bytes(4, "little"))
    file.write(data.data)


def _picture(data: bytes | mmap.mmap | None, *, sure: bool) -> Picture | None:
    """A kept picture; None when there is none or it isn't whole."""
    if data is None or len(data) < _HEAD or data[:8] != _MAGIC:
        return None
    width, height, tall, wide, _, _ = np.frombuffer(data, "<i8", 6, 8).tolist()
    pixels = np.frombuffer(data, np.uint8, offset=_HEAD)
    if min(tall, wide) < 1 or len(pixels) != tall * wide * 3:
        return None
    if not sure and zlib.crc32(pixels.data) != int.from_bytes(data[_HEAD - 4 : _HEAD], "little"):
        return None
    return Picture(pixels.reshape(tall, wide, 3), width, height, Window(0, 0, width, height))


def _remove(folder: str, owner: int) -> None:
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)
