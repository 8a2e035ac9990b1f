"""Recognition of failures in a text: a training log, a traceback, the kernel log."""

from __future__ import annotations

from .._kinds import Finding
from ._scanner import BLOCK_BYTES, LogReading, LogScanner


def read_log(text: str) -> tuple[Finding, ...]:
    """Return the failures in a text, one per kind, most important first.

    Causes come before their consequences, failures that ended the run before those it survived, and memory before
    other failures.
    """
    return _read(text).findings


def last_error(text: str) -> str | None:
    """Return the last line of a text that looks like an error, for texts without a recognized failure."""
    return _read(text).last_error


def _read(text: str) -> LogReading:
    scanner = LogScanner()
    for start in range(0, len(text), BLOCK_BYTES):
        scanner.feed(text[start : start + BLOCK_BYTES].encode("utf-8", "replace"))
    return scanner.finish()
