"""Standard error without the messages of native libraries."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator

_STDERR = 2


@contextlib.contextmanager
def silent_stderr() -> Iterator[None]:
    """Discard what this process writes to standard error: by Python, and to file descriptor 2.

    ExecuTorch and LiteRT log to both when they load a file and have no setting against it. Their errors are exceptions.
    """
    with contextlib.redirect_stderr(io.StringIO()), _silent_descriptor():
        yield


@contextlib.contextmanager
def _silent_descriptor() -> Iterator[None]:
    try:
        saved = os.dup(_STDERR)
    except OSError:  # closed
        yield
        return
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, _STDERR)
        yield
    finally:
        os.dup2(saved, _STDERR)
        os.close(saved)
        os.close(null)
