"""Atomic file writes."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import IO

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
