"""Conversion without the messages of the converters."""

from __future__ import annotations

import contextlib
import logging
import sys
import warnings
from collections.abc import Iterator

from ...detect import silent_stderr


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence the warnings, hints and progress bars of converters; keep standard output for oomph's own."""
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), silent_stderr(), contextlib.redirect_stdout(sys.stderr):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)
