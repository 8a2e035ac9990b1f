"""The files that `find_objects` leaves in a folder: none ever takes the place of somebody else's."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import IO

from ...errors import OomphError, UsageError
from ...files import write_atomically

_LEDGER = ".oomph-found.json"  # name, size and time of every file that was written


class FoundFiles:
    """Writes results into a folder; a file that is there already is replaced only if it is a result, left as it was."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._written = _read(folder / _LEDGER)

    def is_result(self, path: Path) -> bool:
        """Whether a file was written here before, and not touched since."""
        try:
            name = str(path.resolve().relative_to(self.folder.resolve()))
            return name in self._written and self._written[name] == _mark(path)
        except (OSError, ValueError):
            return False

    def check(self, targets: Iterable[Path], sources: Sequence[Path]) -> None:
        """Refuse to begin where a result would take the place of a file that isn't one, or lie among the images.

        Raises:
            UsageError: a result would overwrite an image that is looked at, or somebody's file; or it would be taken for
                an image or a label of the folder that it lies in.
        """
        looked_at = {source.resolve() for source in sources}
        folders = {source.parent for source in looked_at if not self.is_result(source)}
        for target in targets:
            if target.parent.resolve() in folders:
                raise UsageError(
                    f"the results would lie among the images in '{target.parent}', and be taken for some of them",
                    "name another folder with --out",
                )
            if not target.exists() and not target.is_symlink():
                continue
            if target.resolve() in looked_at or not self.is_result(target):
                raise UsageError(
                    f"the results would overwrite '{target}', which oomph didn't write there",
                    "name another folder with --out",
                )

    def write(self, path: Path, write: Callable[[IO[bytes]], object]) -> None:
        """Write a file, and remember it as a result.

        Raises:
            OomphError: it can't be written.
        """
        try:
            write_atomically(path, write)
            self._written[str(path.resolve().relative_to(self.folder.resolve()))] = _mark(path)
        except OSError as error:
            raise _unwritable(path, error) from None

    def close(self) -> None:
        """Keep what was written, for the next time."""
        try:
            text = json.dumps(self._written).encode()
            write_atomically(self.folder / _LEDGER, lambda file: file.write(text))
        except OSError as error:
            raise _unwritable(self.folder / _LEDGER, error) from None

    def open(self) -> None:
        """Make the folder.

        Raises:
            UsageError: it can't be made.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"the folder '{self.folder}' can't be made ({error.strerror})", "name another one with --out"
            ) from None


def _mark(path: Path) -> list[int]:
    facts = path.stat()
    return [facts.st_size, facts.st_mtime_ns]


def _read(ledger: Path) -> dict[str, list[int]]:
    try:
        known = json.loads(ledger.read_text())
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def _unwritable(path: Path, error: OSError) -> OomphError:
    return OomphError(f"'{path}' can't be written ({error.strerror})", "make room, or name another folder with --out")
