"""The newest checkpoint that a run has written."""

from __future__ import annotations

import itertools
import re
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

from ._program import FailedRun

_MAX_FILES = 100_000
_CLOCK_SLACK = 2.0  # seconds; some file systems store whole or even seconds only
_COLOR = re.compile(r"\x1b\[[0-9;]*m")
_RESULT_FOLDER = re.compile(r"Logging results to ([^\r\n]+)")  # as YOLOv5 and Ultralytics print it
_ZIP_START = b"PK"


def newest(folder: Path, pattern: str, since: float, is_complete: Callable[[Path], bool] = Path.exists) -> Path | None:
    """Return the newest path below a folder that matches a pattern and was written since a time; None if there is none.

    Args:
        folder: Where to search.
        pattern: A pattern of `Path.glob`.
        since: In seconds since 1970; older checkpoints are those of other runs.
        is_complete: Returns False for a checkpoint that was being written.
    """
    return next(iter(_written([folder], pattern, since, is_complete)), None)


def newest_of_run(run: FailedRun, folders: Iterable[Path], pattern: str) -> tuple[Path | None, str]:
    """Return the newest checkpoint of a run, or a sentence why it isn't known.

    A run has a folder of its own, with checkpoints in a folder of that, and other runs may be beside it. Its output may
    name its folder; otherwise it is the only one that was written to. Without a new checkpoint, it is the one that the
    run continued.

    Args:
        run: The run.
        folders: Where runs have their folders.
        pattern: A pattern of `Path.glob`, for files in a folder of a run's folder.
    """
    continued = Path(run.checkpoint) if run.checkpoint else None
    named = _RESULT_FOLDER.findall(_COLOR.sub("", run.output))
    if named:
        return newest(Path(named[-1].strip()), pattern, run.start, is_whole) or continued, ""
    paths = _written(folders, pattern, run.start, is_whole)
    runs = sorted({str(path.parent.parent) for path in paths})
    if len(runs) > 1:
        note = (
            f"Several runs have written checkpoints meanwhile, and it isn't known which is its own: {', '.join(runs)}."
        )
        return continued, note
    return (paths[0] if paths else continued), ""


def is_whole(path: Path) -> bool:
    """Return False for a checkpoint of torch whose writing was interrupted."""
    try:
        with path.open("rb") as file:
            start = file.read(len(_ZIP_START))
        return bool(start) and (start != _ZIP_START or zipfile.is_zipfile(path))
    except OSError:
        return False


def _written(folders: Iterable[Path], pattern: str, since: float, is_complete: Callable[[Path], bool]) -> list[Path]:
    """Return the matching paths below folders that were written since a time, newest first."""
    paths = itertools.chain.from_iterable(folder.glob(pattern) for folder in folders if folder.is_dir())
    dated: list[tuple[float, Path]] = []
    for path in itertools.islice(paths, _MAX_FILES):
        try:
            written = path.stat().st_mtime
        except OSError:
            continue  # deleted meanwhile: programs keep the last few only
        if written >= since - _CLOCK_SLACK and is_complete(path):
            dated.append((written, path))
    return [path for _, path in sorted(dated, reverse=True)]
