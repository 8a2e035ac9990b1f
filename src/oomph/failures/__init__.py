"""One taxonomy: every text, signal and symptom of memory running short, and what is taken for it. No torch."""

from ._exceptions import recognise
from ._findings import find_measured
from ._kind import Cause, Family, Finding, Kind
from ._log import last_error, read_log
from ._table import CAUSES

__all__ = ["CAUSES", "Cause", "Family", "Finding", "Kind", "find_measured", "last_error", "read_log", "recognise"]
