"""A cache of decoded images for the next epoch, shared by all workers and ranks of a machine.

Every entry is a file on a disk or in memory (`/dev/shm`), written atomically and with a checksum, so that a crash never
leaves a damaged entry. Entries are never evicted: an epoch visits every image once, so the oldest entry is the one that
is needed next.
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
from typing import IO, Any

import numpy as np

from ..errors import UsageError
from ..files import write_atomically
from ..units import MIB, parse_size
from ._resources import read_resources
from .decoding import Picture, Window
from .headers import Header

_MAGIC = b"oomphpx1"
_SHM = "/dev/shm"  # noqa: S108  the system's shared memory
_HASHED_BYTES = 64 * 1024  # per part of a file
_HASHED_PARTS = 5
_ENTRY_HEADER_BYTES = 8 + 6 * 8 + 4  # magic word, sizes and window, checksum
_MAX_VERIFIED = 50_000  # entries remembered as intact by a process; a few MiB
_FREE_FRACTION = 0.1  # of the file system that stays free
_MEMORY_CHECK_INTERVAL = 64  # entries between two checks of the available memory
_RESERVED_BYTES = 512 * MIB  # of host memory that a cache in memory leaves free


class Cache:
    """Decoded images, looked up by the content of the file and by how it is decoded.

    Args:
        folder: where entries are stored; None for memory, shared by all processes and removed with the process that
            created the cache.
        cap: maximum size in bytes (or "8GiB"). It is reduced to nine tenths of the free space and, in memory, of the
            memory available to this process.

    Raises:
        UsageError: the folder can't be written.
    """

    def __init__(self, folder: str | os.PathLike[str] | None, cap: int | str) -> None:
        is_temporary = folder is None
        if folder is None:
            base = _SHM if os.access(_SHM, os.W_OK) else None
            folder = tempfile.mkdtemp(prefix="oomph-cache-", dir=base)
        self.folder = Path(folder)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            free = shutil.disk_usage(self.folder).free
        except OSError as error:
            raise UsageError(
                f"the cache folder {str(folder)!r} can't be used ({error.strerror})", "name a writable folder"
            ) from None
        with self._locked():
            used = self._remove_partial_files()
            self._write_used(used)
        self.in_memory = str(self.folder).startswith(f"{_SHM}/")
        if self.in_memory:
            free = min(free, read_resources().memory)
        self.cap = min(parse_size(cap), used + int(free * (1 - _FREE_FRACTION)))
        self._additions, self._memory_left = 0, True
        self._verified: dict[tuple[object, ...], Path] = {}
        if is_temporary:
            weakref.finalize(self, _remove_folder, str(self.folder), os.getpid())

    def get(self, path: str, header: Header, settings: object, decode: Callable[[], Picture]) -> Picture:
        """Return the cached image of a file; call `decode` and store the result if there is no intact entry."""
        key = (path, header.file_size, header.mtime_ns, settings)
        entry = self._verified.get(key)
        is_verified = entry is not None
        if entry is None:
            digest = _content_hash(path, header, settings)
            entry = self.folder / digest[:2] / digest[2:]
        picture = _parse_entry(self._read(entry), verify=not is_verified)
        if picture is None:
            picture = decode()
            self._store(entry, picture)
        elif not is_verified and len(self._verified) < _MAX_VERIFIED:
            self._verified[key] = entry  # skip hashing the file and the checksum next time
        return picture

    def _read(self, entry: Path) -> bytes | mmap.mmap | None:
        """Return the bytes of an entry; None if it does not exist.

        An entry in memory is mapped, so that only the pixels in use are touched. An entry on a disk is read, because an
        I/O error in mapped memory would kill the process.
        """
        try:
            if not self.in_memory:
                return entry.read_bytes()
            with entry.open("rb") as file:
                return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError):  # ValueError: an empty file can't be mapped
            return None

    @staticmethod
    def entry_bytes(width: int, height: int) -> int:
        """Return the size of the entry of an image."""
        return _ENTRY_HEADER_BYTES + width * height * 3

    @property
    def used(self) -> int:
        """Bytes of all entries."""
        try:
            return int((self.folder / "used").read_text() or 0)
        except (OSError, ValueError):
            return 0

    def _store(self, entry: Path, picture: Picture) -> None:
        size = self.entry_bytes(picture.pixels.shape[1], picture.pixels.shape[0])
        try:
            with self._locked():
                if self.used + size > self.cap or entry.exists() or not self._has_memory_left():
                    return
                self._write_used(self.used + size)
            entry.parent.mkdir(exist_ok=True)  # not the cache folder, which its owner may have removed
            write_atomically(entry, lambda file: _write_entry(file, picture), fsync=False, parents=False)
        except OSError:  # a full disk must not stop the training
            return

    def _has_memory_left(self) -> bool:
        """Return False if other programs have taken the memory since the cap was set."""
        if self.in_memory and self._additions % _MEMORY_CHECK_INTERVAL == 0:
            self._memory_left = read_resources().memory > _RESERVED_BYTES
        self._additions += 1
        return self._memory_left

    def _remove_partial_files(self) -> int:
        """Remove files that a crash left behind, and return the bytes of all entries."""
        used = 0
        for folder in self.folder.iterdir():
            for entry in folder.iterdir() if folder.is_dir() else ():
                if entry.name.startswith("."):
                    entry.unlink(missing_ok=True)
                else:
                    used += entry.stat().st_size
        return used

    def _write_used(self, used: int) -> None:
        (self.folder / "used").write_text(str(used))

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock between processes; the system releases it if its holder dies."""
        with (self.folder / "lock").open("a+b") as file:
            _lock_file(file)
            yield

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return Cache, (str(self.folder), self.cap)


def _lock_file(file: IO[bytes]) -> None:
    if os.name == "nt":
        import msvcrt  # noqa: PLC0415  Windows only

        msvcrt.locking(file.fileno(), 1, 1)  # type: ignore[attr-defined]  # LK_LOCK on one byte
    else:
        import fcntl  # noqa: PLC0415  not on Windows

        fcntl.flock(file, fcntl.LOCK_EX)


def _content_hash(path: str, header: Header, settings: object) -> str:
    """Hash the size of a file, five parts of its content, and how it is decoded."""
    digest = hashlib.sha256(repr((header.file_size, settings, header.orientation)).encode())
    with Path(path).open("rb") as file:
        for part in range(_HASHED_PARTS):
            file.seek(max(header.file_size - _HASHED_BYTES, 0) * part // (_HASHED_PARTS - 1))
            digest.update(file.read(_HASHED_BYTES))
    return digest.hexdigest()


def _write_entry(file: IO[bytes], picture: Picture) -> None:
    sizes = np.array([picture.width, picture.height, *picture.pixels.shape[:2], 0, 0], "<i8")
    data = np.ascontiguousarray(picture.pixels)
    file.write(_MAGIC + sizes.tobytes() + zlib.crc32(data.data).to_bytes(4, "little"))
    file.write(data.data)


def _parse_entry(data: bytes | mmap.mmap | None, *, verify: bool) -> Picture | None:
    """Return the image of an entry; None if it is missing or damaged."""
    if data is None or len(data) < _ENTRY_HEADER_BYTES or data[:8] != _MAGIC:
        return None
    width, height, rows, columns, _, _ = np.frombuffer(data, "<i8", 6, 8).tolist()
    pixels = np.frombuffer(data, np.uint8, offset=_ENTRY_HEADER_BYTES)
    if min(rows, columns) < 1 or len(pixels) != rows * columns * 3:
        return None
    checksum = data[_ENTRY_HEADER_BYTES - 4 : _ENTRY_HEADER_BYTES]
    if verify and zlib.crc32(pixels.data) != int.from_bytes(checksum, "little"):
        return None
    return Picture(pixels.reshape(rows, columns, 3), width, height, Window(0, 0, width, height))


def _remove_folder(folder: str, owner: int) -> None:
    if os.getpid() == owner:  # not in a forked process
        shutil.rmtree(folder, ignore_errors=True)
