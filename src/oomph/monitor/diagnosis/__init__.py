"""Diagnosis of a Record: findings from its samples, steps and events."""

from ._checks import diagnose_record
from ._exit import unknown_error

__all__ = ["diagnose_record", "unknown_error"]
