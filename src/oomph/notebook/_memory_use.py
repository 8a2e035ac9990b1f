"""Memory of the kernel's process, and what a cell changed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..machine import rss_bytes
from ..monitor import allocator_fields
from ..units import MIB, format_size

THRESHOLD = 64 * MIB  # smaller changes are not shown: imports and caches of Python change RSS all the time


@dataclass(frozen=True)
class GpuUse:
    """Memory of torch's allocator on a GPU: bytes of tensors, and bytes that it holds for them."""

    allocated: int = 0
    reserved: int = 0


@dataclass(frozen=True)
class MemoryUse:
    """Memory of this process.

    Attributes:
        rss: resident bytes.
        gpus: by index, the GPUs that torch has used.
    """

    rss: int
    gpus: dict[int, GpuUse]


def read_memory_use() -> MemoryUse:
    """Read the memory of this process, without waiting for a GPU and without initializing one."""
    gpus = {fields["device"]: GpuUse(fields["allocated"], fields["reserved"]) for fields in allocator_fields()}
    return MemoryUse(rss_bytes(), gpus)


def notable_changes(before: MemoryUse, after: MemoryUse) -> list[str]:
    """Describe the GPUs and the RAM whose use changed by at least the threshold."""
    return [*_gpu_changes(before, after), *_ram_changes(before, after)]


def freed_sizes(before: MemoryUse, after: MemoryUse) -> str:
    """Describe the memory that came back, and what is in use now."""
    parts = []
    for index, use in after.gpus.items():
        size = format_size(max(0, before.gpus.get(index, use).allocated - use.allocated))
        parts.append(f"{_gpu_name(index, after)} {size} (now {_gpu_sizes(use)})")
    parts.append(f"RAM {format_size(max(0, before.rss - after.rss))} (now {format_size(after.rss)})")
    return ", ".join(parts)


def format_use(use: MemoryUse) -> str:
    """Describe the memory in use: `"GPU 4 GiB allocated, 5 GiB reserved, RAM 2 GiB"`."""
    gpus = [f"{_gpu_name(index, use)} {_gpu_sizes(gpu)}" for index, gpu in use.gpus.items()]
    return ", ".join([*gpus, f"RAM {format_size(use.rss)}"])


def _gpu_changes(before: MemoryUse, after: MemoryUse) -> Iterator[str]:
    for index, use in after.gpus.items():
        previous = before.gpus.get(index, GpuUse())
        change = use.allocated - previous.allocated
        if max(abs(change), abs(use.reserved - previous.reserved)) >= THRESHOLD:
            yield f"{_gpu_name(index, after)} {_signed(change)} ({_gpu_sizes(use)})"


def _ram_changes(before: MemoryUse, after: MemoryUse) -> Iterator[str]:
    change = after.rss - before.rss
    if abs(change) >= THRESHOLD:
        yield f"RAM {_signed(change)} ({format_size(after.rss)})"


def _gpu_name(index: int, use: MemoryUse) -> str:
    return "GPU" if list(use.gpus) == [0] else f"GPU {index}"


def _gpu_sizes(use: GpuUse) -> str:
    return f"{format_size(use.allocated)} allocated, {format_size(use.reserved)} reserved"


def _signed(size: int) -> str:
    return f"{'-' if size < 0 else '+'}{format_size(abs(size))}"
