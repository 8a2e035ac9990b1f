"""The results of a sweep: a file that grows by one line per finished cell and survives any death."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import document
from ..errors import InvalidFile, MissingFile, UsageError, quote
from ..files import write_atomically
from ._grid import Grid
from ._result import CellResult

RESULTS_FILE = "results.jsonl"
_LOCK_FILE = ".lock"
_VERSION = 1


@dataclass(frozen=True)
class SweepHeader:
    """Definition of a sweep: the first line of the file, from which it is resumed.

    Attributes:
        grid: The cells.
        flags: The flags of the command line with their texts, such as `{"--batch": ("16,32",)}`.
        cwd: The folder that the cells run in.
    """

    grid: Grid
    flags: Mapping[str, tuple[str, ...]]
    cwd: str


class ResultsFile:
    """The header and rows of a sweep's folder; `append` adds a row.

    Args:
        folder: The folder of the sweep.

    Raises:
        MissingFile: The folder holds no sweep.
        InvalidFile: The file is damaged, except for an incomplete last line, which is ignored.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._path = folder / RESULTS_FILE
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            raise MissingFile(f"there is no sweep in {quote(str(folder))}", "check the name") from None
        except OSError as error:
            raise InvalidFile(
                f"{str(self._path)!r} can't be read ({error.strerror})", "check its permissions"
            ) from None
        header, *rows = self._parse(data)
        self.header = self._decode(SweepHeader, "sweep", header, 1)
        self._rows: dict[str, CellResult] = {}
        for number, row in enumerate(rows, 2):
            result = self._decode(CellResult, "sweep cell", row, number)
            self._rows[result.cell.name] = result

    @classmethod
    def create(cls, folder: Path, header: SweepHeader) -> ResultsFile:
        """Write the file of a new sweep into its folder."""
        line = _line("sweep", header)
        write_atomically(folder / RESULTS_FILE, lambda file: file.write(line))
        return cls(folder)

    @property
    def results(self) -> tuple[CellResult, ...]:
        """The rows, in the order of the grid."""
        rows = (self._rows.get(cell.name) for cell in self.header.grid.cells())
        return tuple(row for row in rows if row is not None)

    def append(self, result: CellResult) -> None:
        """Add the row of a cell and flush it to the disk.

        Raises:
            ValueError: The cell has a row already.
        """
        name = result.cell.name
        if name in self._rows:
            raise ValueError(f"the cell {name} has a row already")
        with self._path.open("r+b") as file:
            # A sweep that was killed while it wrote leaves an incomplete line.
            file.truncate(self._complete_bytes)
            file.seek(0, os.SEEK_END)
            self._complete_bytes += file.write(_line("sweep cell", result))
            file.flush()
            os.fsync(file.fileno())
        self._rows[name] = result

    def remove(self) -> None:
        """Delete the file and the lock, so that an otherwise empty folder can be deleted."""
        for name in (RESULTS_FILE, _LOCK_FILE):
            (self.folder / name).unlink(missing_ok=True)

    def _parse(self, data: bytes) -> list[Any]:
        """Return the JSON values of the complete lines, and remember where these end."""
        values: list[Any] = []
        self._complete_bytes = 0
        lines = data.splitlines(keepends=True)
        for number, line in enumerate(lines, 1):
            try:
                if not line.endswith(b"\n"):
                    break
                values.append(json.loads(line))
            except ValueError:
                if number < len(lines):
                    raise self._damaged(f"line {number} is not JSON") from None
                break
            self._complete_bytes += len(line)
        if not values:
            raise self._damaged("it has no header")
        return values

    def _decode(self, cls: type[Any], kind: str, data: Any, line: int) -> Any:
        try:
            return document.read(kind, _VERSION, cls, data)
        except InvalidFile as error:
            raise self._damaged(f"line {line}: {error.why}") from None

    def _damaged(self, what: str) -> InvalidFile:
        return InvalidFile(f"{str(self._path)!r} is damaged ({what})", "start a new sweep")


def _line(kind: str, value: object) -> bytes:
    return json.dumps(document.write(kind, _VERSION, value), allow_nan=False).encode() + b"\n"


@contextlib.contextmanager
def lock_sweep(folder: Path) -> Iterator[None]:
    """Hold the folder of a sweep; the system releases it if this process dies.

    Raises:
        UsageError: Another process runs the sweep.
    """
    try:
        import fcntl  # noqa: PLC0415  not on Windows
    except ImportError:
        yield
        return
    with (folder / _LOCK_FILE).open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                f"the sweep in {quote(str(folder))} is still running", "wait for its end, or stop it first"
            ) from None
        yield
