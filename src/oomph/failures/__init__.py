"""One taxonomy of failures: error texts, signals and symptoms, each with its cause and fix. Imports no torch."""

from ._causes import CAUSES
from ._exceptions import classify_exception
from ._findings import measured_finding
from ._frames import release_frames
from ._kinds import Cause, FailureKind, Family, Finding
from ._log import last_error, read_log

__all__ = [
    "CAUSES",
    "Cause",
    "FailureKind",
    "Family",
    "Finding",
    "classify_exception",
    "last_error",
    "measured_finding",
    "read_log",
    "release_frames",
]
