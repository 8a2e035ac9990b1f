"""Reading of logs of any size: which lines may contain a failure, and which failure is the most important."""

from ._read import last_error, read_log
from ._scanner import BLOCK_BYTES, LogReading, LogScanner

__all__ = ["BLOCK_BYTES", "LogReading", "LogScanner", "last_error", "read_log"]
