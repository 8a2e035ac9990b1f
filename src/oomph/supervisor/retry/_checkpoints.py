"""The newest checkpoint that a run has written."""

from __future__ import annotations

import itertools
import re
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

from ._program import FailedRun

YOLO_FOLDER = re.compile(r"Logging results to ([^\r\n]+)")  # as YOLOv5 and Ultralytics print it

_MAX_FILES = 100_000
_CLOCK_SLACK = 2.0  # seconds; some file systems store whole or even seconds only
_COLOR = re.compile(r"\x1b\[[0-9;]*m")
_ZIP_START = b"PK"


def newest(folder: Path, pattern: str, since: float, is_complete: Callable[[Path], bool] = Path.exists) -> Path | None:
    """Return the newest path below a folder that matches a pattern and was written since a time; None if there is none.

    Args:
        folder: Where to search.
        pattern: A pattern of `Path.glob`.
        since: In seconds since 1970; older checkpoints are those of other runs.
        is_complete: Returns False for a checkpoint that was being written.
    """
    return next(iter(written([folder], pattern, since, is_complete)), None)


def newest_of_run(
    run: FailedRun, folders: Iterable[Path], pattern: str, folder_line: re.Pattern[str]
) -> tuple[Path | None, str]:
    """Return the newest checkpoint of a run, or a sentence why it isn't known.

    A run has a folder of its own, with checkpoints in a folder of that, and other runs may be beside it. Its output may
    name its folder; otherwise it is the only one that was written to. Without a new checkpoint, it is the one that the
    run continued.

    Args:
        run: The run.
        folders: Where runs have their folders.
        pattern: A pattern of `Path.glob`, for files in a folder of a run's folder.
        folder_line: The line of its output that names its folder.
    """
    continued = Path(run.checkpoint) if run.checkpoint else None
    named = last_named(run, folder_line)
    if named is not None:
        return newest(named, pattern, run.start, is_whole) or continued, ""
    paths = written(folders, pattern, run.start, is_whole)
    runs = sorted({str(path.parent.parent) for path in paths})
    if len(runs) > 1:
        note = (
            f"Several runs have written checkpoints meanwhile, and it isn't known which is its own: {', '.join(runs)}."
        )
        return continued, note
    return (paths[0] if paths else continued), ""


def last_named(run: FailedRun, line: re.Pattern[str]) -> Path | None:
    """Return the path that a run has named last in a line of its output; None if there is none."""
    named = line.findall(_COLOR.sub("", run.output))
    return Path(named[-1].strip()) if named else None


def is_whole(path: Path) -> bool:
    """Return False for a checkpoint of torch whose writing was interrupted."""
    try:
        with path.open("rb") as file:
            start = file.read(len(_ZIP_START))
        return bool(start) and (start != _ZIP_START or zipfile.is_zipfile(path))
    except OSError:
        return False


def written(folders: Iterable[Path], pattern: str, since: float, is_complete: Callable[[Path], bool]) -> list[Path]:
    """Return the matching paths below folders that were written since a time, newest first."""
    paths = itertools.chain.from_iterable(folder.glob(pattern) for folder in folders if folder.is_dir())
    dated: list[tuple[float, Path]] = []
    for path in itertools.islice(paths, _MAX_FILES):
        try:
            when = path.stat().st_mtime
        except OSError:
            continue  # deleted meanwhile: programs keep the last few only
        if when >= since - _CLOCK_SLACK and is_complete(path):
            dated.append((when, path))
    return [path for _, path in sorted(dated, reverse=True)]
