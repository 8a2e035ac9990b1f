"""Retries of foreign commands: smaller, and from their own checkpoint."""

from ._placeholders import Template, parse_template
from ._policy import Decision, RetryPolicy, SmallerCommand, is_other_error, is_out_of_memory
from ._program import FailedRun
from ._settings import BatchSettings

__all__ = [
    "BatchSettings",
    "Decision",
    "FailedRun",
    "RetryPolicy",
    "SmallerCommand",
    "Template",
    "is_other_error",
    "is_out_of_memory",
    "parse_template",
]
