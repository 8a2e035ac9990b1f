"""The lines of the user's code that are running: those outside of torch, NumPy, Python and oomph."""

from __future__ import annotations

import functools
import linecache
import os
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import FrameType, TracebackType

from ...errors import shorten
from .._trace import CodeLine

_OOMPH = str(Path(__file__).parents[2]) + os.sep
# The user's code inside a trace is called by these files; what is outside of them called oomph.
_CALLERS = {str(Path(__file__).parents[1] / name) for name in ("_step.py", "_fake_job.py")}
_LIBRARIES = ("torch", "numpy", "scipy", "_pytest", "pluggy")


@functools.lru_cache(maxsize=4096)
def is_library_file(file: str) -> bool:
    """Return True for files of torch, NumPy, SciPy, Python and oomph."""
    if file.startswith(("<frozen", _OOMPH, *_library_folders())):
        return True
    return file.startswith(sysconfig.get_paths()["stdlib"] + os.sep) and "-packages" not in file


@functools.lru_cache(maxsize=1)
def _library_folders() -> tuple[str, ...]:
    files = (getattr(sys.modules.get(name), "__file__", None) for name in _LIBRARIES)
    return tuple(str(Path(file).parent) + os.sep for file in files if file)


def running_line() -> str:
    """Return the running line of the user's code as `file.py:12 (the source)`; empty if there is none."""
    frame = next(_user_frames(sys._getframe(1)), None)
    return "" if frame is None else _describe(frame.f_code.co_filename, frame.f_lineno)


def running_stack() -> tuple[CodeLine, ...]:
    """Return the running lines of the user's code, innermost first."""
    return tuple(
        CodeLine(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
        for frame in _user_frames(sys._getframe(1))
    )


def _user_frames(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield the frames of the user's code from a frame outward."""
    while frame is not None and frame.f_code.co_filename not in _CALLERS:
        if not is_library_file(frame.f_code.co_filename):
            yield frame
        frame = frame.f_back


def failing_line(trace: TracebackType | None) -> str:
    """Return the innermost line of the user's code in a traceback; empty if there is none."""
    for frame, line in reversed(list(traceback.walk_tb(trace))):
        if not is_library_file(frame.f_code.co_filename):
            return _describe(frame.f_code.co_filename, line)
    return ""


def _describe(file: str, line: int) -> str:
    source = linecache.getline(file, line).strip()
    path = Path(file)
    short = path.name if len(path.parts) < 2 else f"{path.parent.name}/{path.name}" if path.is_absolute() else file  # noqa: PLR2004
    return f"{short}:{line}" + (f" `{shorten(source, 80)}`" if source else "")
