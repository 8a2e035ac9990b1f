"""The newest checkpoint that a run has written."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

_MAX_FILES = 100_000
_CLOCK_SLACK = 2.0  # seconds; some file systems store whole or even seconds only


def newest(
    folder: Path, patterns: tuple[str, ...], since: float, is_valid: Callable[[Path], bool] = Path.exists
) -> Path | None:
    """Return the newest path below a folder that matches a pattern and was written since a time; None if there is none.

    Args:
        folder: Where to search.
        patterns: Patterns of `Path.glob`.
        since: In seconds since 1970; older checkpoints are those of other runs.
        is_valid: Returns False for a checkpoint that is incomplete.
    """
    if not folder.is_dir():
        return None
    paths = itertools.chain.from_iterable(folder.glob(pattern) for pattern in patterns)
    dated: list[tuple[float, Path]] = []
    for path in itertools.islice(paths, _MAX_FILES):
        try:
            written = path.stat().st_mtime
        except OSError:
            continue  # deleted meanwhile: programs keep the last few only
        if written >= since - _CLOCK_SLACK and is_valid(path):
            dated.append((written, path))
    return max(dated, default=(0.0, None))[1]
