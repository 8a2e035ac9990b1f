from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from types import SimpleNamespace

import psutil
import pytest

from oomph.errors import UsageError
from oomph.machine import GpuReading
from oomph.monitor import MachineProbe, Probe
from oomph.units import GIB, MIB

_CHILD = "data = bytearray(b'x' * (40 << 20)); print('ready', flush=True); input()"
_PARENT = f"""
import subprocess, sys
data = bytearray(b"x" * (60 << 20))
subprocess.Popen([sys.executable, "-c", {_CHILD!r}], stdin=subprocess.PIPE).wait()
"""


@pytest.fixture
def parent() -> Iterator[subprocess.Popen[bytes]]:
    """A process that uses 60 MiB, with a child that uses 40 MiB."""
    process = subprocess.Popen([sys.executable, "-c", _PARENT], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    yield process
    for child in psutil.Process(process.pid).children() if process.poll() is None else []:
        child.kill()
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.mark.medium
def test_sample_includes_child_processes(parent: subprocess.Popen[bytes]) -> None:
    with Probe(parent.pid) as probe:
        sample = probe.read()
    assert sample["children"] == 1
    assert sample["main_rss"] > 60 * MIB
    assert sample["rss"] > sample["main_rss"] + 40 * MIB
    assert 100 * MIB < sample["pss"] <= sample["rss"]
    assert sample["ram_total"] == psutil.virtual_memory().total


@pytest.mark.medium
def test_zombie_is_not_alive(parent: subprocess.Popen[bytes]) -> None:
    with Probe(parent.pid) as probe:
        assert bool(probe.tree.is_alive) is True
        for child in psutil.Process(parent.pid).children():
            child.kill()
        parent.kill()
        deadline = time.monotonic() + 5
        while probe.tree.is_alive and time.monotonic() < deadline:
            time.sleep(0.01)
        assert bool(probe.tree.is_alive) is False
        probe.read()


def test_missing_process_is_rejected() -> None:
    with pytest.raises(UsageError, match="there is no process 999999999"):
        Probe(999999999)


def test_swap_rates_need_two_readings() -> None:
    with Probe() as probe:
        assert "swap_in_rate" not in probe.read()
        time.sleep(0.01)
        assert probe.read()["swap_in_rate"] >= 0


def gpu_reading(*processes: tuple[int, int | None]) -> GpuReading:
    return GpuReading(0, "GPU", 8 * GIB, GIB, 50, processes or None)


def test_gpu_memory_is_split_by_process(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = [
        gpu_reading((os.getpid(), 2 * GIB), (1, 3 * GIB)),
        gpu_reading(),
        gpu_reading((2**22 + 5, 3 * GIB)),
    ]
    monkeypatch.setattr("oomph.machine.GpuMemoryReader.read", lambda self: (readings.pop(0),))
    with Probe() as probe:
        gpu = probe.read()["gpus"][0]
        assert (gpu["tree_used"], gpu["others_used"], gpu["other_pid"]) == (2 * GIB, 3 * GIB, 1)
        assert gpu["utilization"] == 50
        hidden = probe.read()["gpus"][0]
        assert "tree_used" not in hidden
        assert "others_used" not in hidden
        # A pid that doesn't exist here is one of the host: it may be this very process in a container.
        assert "others_used" not in probe.read()["gpus"][0]


def test_device_selects_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oomph.machine.GpuMemoryReader.read", lambda self: (gpu_reading(),))
    with Probe(device=0) as first, Probe(device=1) as second:
        assert len(first.read()["gpus"]) == 1
        assert "gpus" not in second.read()


def test_allocator_is_read_only_after_cuda_is_initialized(monkeypatch: pytest.MonkeyPatch) -> None:
    is_initialized = False
    stats = {
        "reserved_bytes.all.peak": 5,
        "allocated_bytes.all.current": 1,
        "allocated_bytes.all.peak": 4,
        "reserved_bytes.all.current": 5,
        "num_alloc_retries": 2,
        "num_ooms": 1,
    }
    cuda = SimpleNamespace(
        is_initialized=lambda: is_initialized, device_count=lambda: 1, memory_stats=lambda device: stats
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    with Probe() as probe:
        assert "torch" not in probe.read()
        is_initialized = True
        (allocator,) = probe.read()["torch"]
    assert (allocator["allocated"], allocator["alloc_retries"], allocator["ooms"]) == (1, 2, 1)


@pytest.mark.medium
def test_probe_imports_no_torch() -> None:
    code = "import sys; from oomph.monitor import Probe; Probe().read(); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.medium
def test_machine_probe_lists_trees_that_look_like_training(parent: subprocess.Popen[bytes]) -> None:
    probe = MachineProbe()
    sample = probe.read()
    probe.close()
    assert sample["ram_total"] > 0
    pids = {process["pid"] for process in sample["processes"]}
    assert all(process["rss"] > 0 for process in sample["processes"])
    assert not {child.pid for child in psutil.Process(parent.pid).children()} & pids
    # On a busy machine, larger trees may fill the list.
    assert parent.pid in pids or all(process["rss"] > 100 * MIB for process in sample["processes"])
