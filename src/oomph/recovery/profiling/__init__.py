"""What a guarded run leaves for torch's and NVIDIA's tools: memory snapshots of out-of-memory errors, NVTX ranges."""

from ._memory_history import record_memory_history
from ._nvtx import Range, nvtx_range

__all__ = ["Range", "nvtx_range", "record_memory_history"]
