"""Files that are there whole or not at all, whatever happens while they are written."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import IO

_ZIP_WRITER = ("PytorchStreamWriter", "unexpected pos")  # torch's words for a file that could not be written on


def write_atomically(
    path: Path, write: Callable[[IO[bytes]], object], *, lasting: bool = True, folders: bool = True
) -> None:
    """Write a file beside its place, push it to the disk, then put it into place in one step.

    Its permissions are those that the umask gives to any new file.

    Args:
        path: its place.
        write: is given the open file.
        lasting: whether it must be on the disk when this returns; without, a power cut may cost it.
        folders: whether folders are made as needed.

    Raises:
        OSError: it couldn't be written; what was there before is untouched.
    """
    if folders:
        path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name[:40]}.{secrets.token_hex(6)}.part")
    try:
        with part.open("xb") as file:
            try:
                write(file)
                file.flush()
            except RuntimeError as error:  # torch's zip writer turns a full disk into this, whose words are behind it
                behind = error.__context__
                if not isinstance(behind, OSError) and not any(words in str(error) for words in _ZIP_WRITER):
                    raise  # memory that ran short, or something that can't be pickled
                found = behind if isinstance(behind, OSError) else OSError(errno.EIO, str(error))
                raise OSError(found.errno, found.strerror, str(path)) from error
            if lasting:
                os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    if lasting:
        _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Make the new name itself last through a power cut, where folders can be opened."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        pass  # not every file system can
    finally:
        os.close(handle)
