"""Atomic file writes, and the folders of runs."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from .errors import UsageError

_TORCH_WRITE_ERRORS = ("PytorchStreamWriter", "unexpected pos")


def write_atomically(
    path: Path, write: Callable[[IO[bytes]], object], *, fsync: bool = True, parents: bool = True
) -> None:
    """Write a file so that it is complete or absent after any crash.

    The content goes into a temporary file in the same folder, which then replaces `path` in one step. The file's
    permissions follow the umask.

    Args:
        path: where the file goes.
        write: writes the content into the open file it is given.
        fsync: flush to the disk before returning; without it a power failure may lose the file.
        parents: create missing parent folders.

    Raises:
        OSError: writing failed; the previous file, if any, is unchanged.
    """
    if parents:
        path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name[:40]}.{secrets.token_hex(6)}.part")
    try:
        with part.open("xb") as file:
            try:
                write(file)
                file.flush()
            except RuntimeError as error:
                disk_error = _disk_error(error, path)
                if disk_error is None:
                    raise  # out of memory, or a value that can't be pickled
                raise disk_error from error
            if fsync:
                os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    if fsync:
        _sync_folder(path.parent)


def _disk_error(error: RuntimeError, path: Path) -> OSError | None:
    """Return the OSError behind a RuntimeError of torch's zip writer, which hides a full disk that way."""
    cause = error.__context__
    if isinstance(cause, OSError):
        return OSError(cause.errno, cause.strerror, str(path))
    if any(text in str(error) for text in _TORCH_WRITE_ERRORS):
        return OSError(errno.EIO, str(error), str(path))
    return None


def _sync_folder(folder: Path) -> None:
    """Flush the folder entry too, so that the rename survives a power failure."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return  # Windows can't open folders
    try:
        os.fsync(handle)
    except OSError:
        pass  # some file systems don't support it
    finally:
        os.close(handle)


@contextlib.contextmanager
def create_run_dir(name: str, runs: Path = Path("runs/train")) -> Iterator[Path]:
    """Create a folder of that name, with a number if it exists; removed at the end if it is still empty.

    It is created at once, so that two runs that start together never share one.

    Raises:
        UsageError: the name is invalid, or the folder can't be created.
    """
    check_run_name(name)
    try:
        folder = _create(name, runs)
    except OSError as error:
        raise not_writable(runs, error) from None
    try:
        yield folder
    finally:
        with contextlib.suppress(OSError):  # not empty
            folder.rmdir()


def _create(name: str, runs: Path) -> Path:
    runs.mkdir(parents=True, exist_ok=True)
    folder, number = runs / name, 2
    while True:
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
            return folder
        folder, number = runs / f"{name}{number}", number + 1


def not_writable(folder: Path, error: OSError) -> UsageError:
    """Return the error for a folder that can't be written."""
    return UsageError(f"{str(folder)!r} is not writable ({error.strerror})", "run oomph in a folder that is")


def check_run_name(name: str) -> None:
    """Raise UsageError for a name that can't be that of a folder."""
    if not name or set(name) & set("/\\") or name in {".", ".."}:
        raise UsageError(f"{name!r} is not a valid run name", "use a name without slashes")
