"""The predicted timeline for other tools: torch's memory snapshots, and Chrome's trace events. No torch."""

from ._chrome_trace import chrome_trace
from ._files import TimelineFiles
from ._memory_snapshot import memory_snapshot

__all__ = ["TimelineFiles", "chrome_trace", "memory_snapshot"]
