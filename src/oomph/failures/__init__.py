"""One taxonomy: every text, signal and symptom of memory running short, and what is taken for it. No torch."""

from ._exceptions import classify_exception
from ._findings import find_measured
from ._kind import Cause, FailureKind, Family, Finding
from ._log import last_error, read_log
from ._table import CAUSES

__all__ = [
    "CAUSES",
    "Cause",
    "FailureKind",
    "Family",
    "Finding",
    "classify_exception",
    "find_measured",
    "last_error",
    "read_log",
]
