from __future__ import annotations

import subprocess
import sys

from oomph.notebook._memory_use import GpuUse, MemoryUse, format_use, freed_sizes, notable_changes, read_memory_use
from oomph.units import GIB, MIB

IDLE = MemoryUse(GIB, {})


def on_gpu(allocated: int, reserved: int, rss: int = GIB) -> MemoryUse:
    return MemoryUse(rss, {0: GpuUse(allocated, reserved)})


def test_a_first_use_of_the_gpu_is_a_change() -> None:
    assert notable_changes(IDLE, on_gpu(GIB, 2 * GIB)) == ["GPU +1 GiB (1 GiB allocated, 2 GiB reserved)"]


def test_freed_memory_is_negative() -> None:
    changes = notable_changes(on_gpu(3 * GIB, 4 * GIB, 2 * GIB), on_gpu(GIB, 4 * GIB))
    assert changes == ["GPU -2 GiB (1 GiB allocated, 4 GiB reserved)", "RAM -1 GiB (1 GiB)"]


def test_memory_that_only_the_cache_keeps_is_a_change() -> None:
    assert notable_changes(on_gpu(GIB, GIB), on_gpu(GIB, 5 * GIB)) == ["GPU +0 B (1 GiB allocated, 5 GiB reserved)"]


def test_changes_below_the_threshold_are_none() -> None:
    assert notable_changes(on_gpu(0, 0), on_gpu(63 * MIB, 63 * MIB, GIB + 63 * MIB)) == []
    assert notable_changes(on_gpu(0, 0), on_gpu(64 * MIB, 64 * MIB)) != []


def test_several_gpus_have_their_index() -> None:
    use = MemoryUse(GIB, {0: GpuUse(GIB, GIB), 1: GpuUse(2 * GIB, 2 * GIB)})
    assert notable_changes(on_gpu(GIB, GIB), use) == ["GPU 1 +2 GiB (2 GiB allocated, 2 GiB reserved)"]
    expected = "GPU 0 1 GiB allocated, 1 GiB reserved, GPU 1 2 GiB allocated, 2 GiB reserved, RAM 1 GiB"
    assert format_use(use) == expected


def test_the_freed_memory_is_never_negative() -> None:
    before, after = on_gpu(6 * GIB, 7 * GIB, GIB), on_gpu(GIB, GIB, 2 * GIB)
    assert freed_sizes(before, after) == "GPU 5 GiB (now 1 GiB allocated, 1 GiB reserved), RAM 0 B (now 2 GiB)"


def test_reading_imports_no_torch() -> None:
    code = """
import sys
from oomph.notebook._memory_use import read_memory_use
assert read_memory_use().rss > 2**20
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    assert read_memory_use().gpus == {}
