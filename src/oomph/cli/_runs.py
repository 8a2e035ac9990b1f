"""The folders of training runs: a new one, or one to go on with."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

from ..errors import MissingFile, UsageError

RUNS = Path("runs/train")
NEWEST = "newest"
_STATES = "*/weights/state*.pt"


@contextlib.contextmanager
def claimed_folder(name: str, runs: Path = RUNS) -> Iterator[Path]:
    """A new folder: the name, with a number if need be; gone again at the end if nothing was put into it.

    It is made at once, so that two runs that begin together never share one.

    Raises:
        UsageError: the name can't be one, or nothing can be written here.
    """
    _check(name)
    try:
        folder = _make(name, runs)
    except OSError as error:
        raise unwritable(runs, error) from None
    try:
        yield folder
    finally:
        with contextlib.suppress(OSError):  # a run came to be
            folder.rmdir()


def _make(name: str, runs: Path) -> Path:
    runs.mkdir(parents=True, exist_ok=True)
    folder, number = runs / name, 2
    while True:
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
            return folder
        folder, number = runs / f"{name}{number}", number + 1


def unwritable(folder: Path, error: OSError) -> UsageError:
    """Why a run can't be begun where one is."""
    fix = "change into a folder that you may write to"
    return UsageError(f"nothing can be written into {str(folder)!r} ({error.strerror})", fix)


def find_run(wanted: str, name: str | None) -> Path:
    """The folder of a run: the newest one (of a name), or the one that a folder, checkpoint or name leads to.

    Raises:
        MissingFile: there is no such run, or it has no checkpoint.
    """
    if wanted == NEWEST:
        return _newest(name)
    if name is not None:
        raise UsageError(f"both --resume {wanted} and --name {name} say which run", "leave one of them out")
    path = next((one for one in (Path(wanted), RUNS / wanted) if one.exists()), None)
    if path is None:
        raise MissingFile(f"there is no run '{wanted}' to resume", "name its folder, or its last.pt")
    folder = path.parent if path.is_file() else path
    return folder.parent if folder.name == "weights" else folder


def _newest(name: str | None) -> Path:
    if name is not None:
        _check(name)
    of_name = re.compile(".*" if name is None else re.escape(name) + r"\d*")
    found = [path for path in RUNS.glob(_STATES) if of_name.fullmatch(path.parent.parent.name)]
    if not found:
        which = "no run" if name is None else f"no run {name!r}"
        raise MissingFile(f"there is {which} to resume in {RUNS}", "check the name, or leave --resume out")
    return max(found, key=lambda path: path.stat().st_mtime).parent.parent


def _check(name: str) -> None:
    if not name or set(name) & set("/\\") or name in {".", ".."}:
        raise UsageError(f"{name!r} can't be the name of a run", "write a plain name")
