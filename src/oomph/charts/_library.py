"""The import of matplotlib: silent, and whatever the environment says about windows."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
from collections.abc import Iterator

_BACKEND = "MPLBACKEND"
_lock = threading.Lock()


def load_matplotlib() -> None:
    """Import matplotlib, so that it can be imported by name everywhere; cheap if it already is."""
    with _lock:
        if "matplotlib.font_manager" not in sys.modules:
            with _hidden_backend(), _quiet():
                import matplotlib.font_manager  # noqa: F401, PLC0415  slow to import


@contextlib.contextmanager
def _hidden_backend() -> Iterator[None]:
    """Hide the variable MPLBACKEND from the import, which fails if its value is unknown, and apply it afterwards.

    Nothing here opens a window, but other code of the process may.
    """
    backend = None if "matplotlib" in sys.modules else os.environ.pop(_BACKEND, None)
    try:
        yield
    finally:
        if backend is not None:
            os.environ[_BACKEND] = backend
    if backend:
        import matplotlib as mpl  # noqa: PLC0415

        with contextlib.suppress(ValueError):
            mpl.rcParams["backend"] = backend


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hide log messages, such as about a configuration folder that can't be written."""
    logger = logging.getLogger("matplotlib")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
