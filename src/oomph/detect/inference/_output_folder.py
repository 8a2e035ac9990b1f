"""The output folder of `detect_objects`: only outputs of earlier calls are overwritten there."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import IO

from ...errors import OomphError, UsageError
from ...files import write_atomically

_MANIFEST = ".oomph-outputs.json"  # size and modification time of every output, by name
_FIX = "choose another folder with --out"


class OutputFolder:
    """Writes outputs, and overwrites a file only if it is an unmodified output of an earlier call."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._manifest = _read_manifest(folder / _MANIFEST)

    def create(self) -> None:
        """Create the folder.

        Raises:
            UsageError: it can't be created.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"the folder '{self.folder}' can't be created ({error.strerror})", _FIX) from None

    def is_output(self, path: Path) -> bool:
        """Return True if a file is an output of an earlier call and wasn't modified since."""
        try:
            name = str(path.resolve().relative_to(self.folder.resolve()))
            return name in self._manifest and self._manifest[name] == _signature(path)
        except (OSError, ValueError):
            return False

    def check(self, targets: Iterable[Path], sources: Sequence[Path]) -> None:
        """Raise before anything is written if an output would overwrite another file, or lie among the source images.

        Raises:
            UsageError: an output would overwrite a file that isn't an output, or would later be taken for a source
                image or its label.
        """
        source_paths = {source.resolve() for source in sources}
        source_folders = {path.parent for path in source_paths if not self.is_output(path)}
        for target in targets:
            if target.parent.resolve() in source_folders:
                raise UsageError(f"the output folder '{target.parent}' contains the source images", _FIX)
            if not target.exists() and not target.is_symlink():
                continue
            if target.resolve() in source_paths or not self.is_output(target):
                raise UsageError(f"the output would overwrite '{target}', which oomph didn't write", _FIX)

    def write(self, path: Path, write: Callable[[IO[bytes]], object]) -> None:
        """Write an output file.

        Raises:
            OomphError: it can't be written.
        """
        try:
            write_atomically(path, write)
            self._manifest[str(path.resolve().relative_to(self.folder.resolve()))] = _signature(path)
        except OSError as error:
            raise _write_error(path, error) from None

    def save_manifest(self) -> None:
        """Save the list of outputs for the next call."""
        try:
            text = json.dumps(self._manifest).encode()
            write_atomically(self.folder / _MANIFEST, lambda file: file.write(text))
        except OSError as error:
            raise _write_error(self.folder / _MANIFEST, error) from None


def _signature(path: Path) -> list[int]:
    status = path.stat()
    return [status.st_size, status.st_mtime_ns]


def _read_manifest(path: Path) -> dict[str, list[int]]:
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _write_error(path: Path, error: OSError) -> OomphError:
    return OomphError(f"'{path}' can't be written ({error.strerror})", f"free some disk space, or {_FIX}")
