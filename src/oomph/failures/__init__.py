"""One taxonomy of failures: error texts, signals and symptoms, each with its cause and fix. Imports no torch."""

from ._exceptions import classify_exception
from ._findings import measured_finding
from ._frames import release_frames
from ._kinds import Advice, Cause, FailureKind, Family, Finding, Resource
from .causes import CAUSES
from .log import LogReading, LogScanner, last_error, read_log

__all__ = [
    "CAUSES",
    "Advice",
    "Cause",
    "FailureKind",
    "Family",
    "Finding",
    "LogReading",
    "LogScanner",
    "Resource",
    "classify_exception",
    "last_error",
    "measured_finding",
    "read_log",
    "release_frames",
]
