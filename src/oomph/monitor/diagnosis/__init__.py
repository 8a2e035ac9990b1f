"""Diagnosis of a Record: findings from its samples, steps and events."""

from ._checks import diagnose_record

__all__ = ["diagnose_record"]
