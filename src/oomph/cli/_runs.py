"""Folders of training runs and sweeps: creating a new one, finding an existing one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..errors import MissingFile, UsageError, quote
from ..files import check_run_name, create_run_dir, not_writable

__all__ = [
    "NEWEST",
    "SWEEPS",
    "create_run_dir",
    "default_resume",
    "default_retry",
    "find_run",
    "find_sweep",
    "not_writable",
    "own_arguments",
]

_RUNS, SWEEPS = Path("runs/train"), Path("runs/sweep")
NEWEST = "newest"
RETRIES = 5  # of a bare --retry
_BARE_FLAGS = ("--no-guard-ram", "--help", "-h")  # of `oomph run`
_STATE_FILES = "*/weights/state*.pt"
_RESUMABLE = ("train", "sweep")


def default_resume(arguments: Sequence[str]) -> list[str]:
    """Add the value that typer requires to a bare --resume, which means the newest run as in YOLOv5."""
    result = list(arguments)
    if result[:1] and result[0] in _RESUMABLE and "--resume" in result:
        after = result.index("--resume") + 1
        if after == len(result) or result[after].startswith("-"):
            result.insert(after, NEWEST)
    return result


def default_retry(arguments: Sequence[str]) -> list[str]:
    """Add the value that typer requires to a bare --retry of `oomph run`."""
    result = list(arguments)
    for position in _own_flags(arguments):
        after = position + 1
        if arguments[position] == "--retry" and not (after < len(arguments) and arguments[after].isdigit()):
            result.insert(after, str(RETRIES))
            break
    return result


def own_arguments(arguments: Sequence[str]) -> list[str]:
    """Return the arguments of `oomph run` itself, without the command."""
    positions = list(_own_flags(arguments))
    return list(arguments[: positions[-1] + 2 if positions else 1])


def _own_flags(arguments: Sequence[str]) -> Iterator[int]:
    """Yield the positions of the flags of `oomph run`; after the first other word, flags are the command's."""
    position = 1
    while position < len(arguments):
        word = arguments[position]
        if word == "--" or not word.startswith("-"):
            return
        yield position
        is_bare_retry = word == "--retry" and not "".join(arguments[position + 1 : position + 2]).isdigit()
        position += 1 if "=" in word or word in _BARE_FLAGS or is_bare_retry else 2


def find_run(run: str, name: str | None) -> Path:
    """Return the folder of a run: the newest one (of a name), or that of a folder, checkpoint or name.

    Raises:
        MissingFile: there is no such run, or it has no checkpoint.
        UsageError: both a run and a name are given.
    """
    if run == NEWEST:
        return _newest_run(name)
    if name is not None:
        raise UsageError(f"both --resume {run} and --name {name} select a run", "remove one of them")
    path = next((path for path in (Path(run), _RUNS / run) if path.exists()), None)
    if path is None:
        raise MissingFile(f"there is no run '{run}' to resume", "pass its folder or its last.pt")
    folder = path.parent if path.is_file() else path
    return folder.parent if folder.name == "weights" else folder


def find_sweep(sweep: str, name: str | None, results_file: str) -> Path:
    """Return the folder of a sweep: the newest one (of a name), or that of a folder or name.

    Raises:
        MissingFile: there is no such sweep.
        UsageError: both a sweep and a name are given.
    """
    if sweep != NEWEST:
        if name is not None:
            raise UsageError(f"both --resume {sweep} and --name {name} select a sweep", "remove one of them")
        found = [folder for folder in (SWEEPS / sweep, Path(sweep)) if (folder / results_file).is_file()]
        if not found:
            raise MissingFile(f"there is no sweep {quote(sweep)} to resume", "pass its folder or its name")
        return found[0]
    pattern = re.compile(".*" if name is None else re.escape(name) + r"\d*")
    files = [path for path in SWEEPS.glob(f"*/{results_file}") if pattern.fullmatch(path.parent.name)]
    if not files:
        raise MissingFile(f"there is no sweep to resume in {SWEEPS}", "check the name, or remove --resume")
    return max(files, key=lambda path: path.stat().st_mtime).parent


def _newest_run(name: str | None) -> Path:
    if name is not None:
        check_run_name(name)
    pattern = re.compile(".*" if name is None else re.escape(name) + r"\d*")
    states = [path for path in _RUNS.glob(_STATE_FILES) if pattern.fullmatch(path.parent.parent.name)]
    if not states:
        run = "no run" if name is None else f"no run {name!r}"
        raise MissingFile(f"there is {run} to resume in {_RUNS}", "check the name, or remove --resume")
    return max(states, key=lambda path: path.stat().st_mtime).parent.parent
