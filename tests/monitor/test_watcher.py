from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from oomph.errors import UsageError
from oomph.machine import GpuReading
from oomph.monitor import MachineProbe, Recorder, Watcher
from oomph.units import GIB, MIB

from ..machine.recordings import H200


def h200_reading(pid: int) -> GpuReading:
    """The recorded GPU, with its process under another pid."""
    device: dict[str, Any] = H200["devices"][0]
    memory, (process,) = device["memory"]["value"], device["processes"]["value"]
    processes = ((pid, process["used"]),)
    return GpuReading(0, device["name"]["value"], memory["total"], memory["free"], 35, processes)


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "60"])
    yield process
    process.kill()
    process.wait()


def test_a_process_on_a_gpu_is_listed_whatever_its_name(
    sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oomph.machine.GpuMemoryReader.read", lambda self: (h200_reading(sleeper.pid),))
    watcher = Watcher()
    reading = watcher.read()
    watcher.close()
    # Not by position: a test runner that starts this process is a Python program, too.
    use = next(use for use in reading.processes if use.pid == sleeper.pid)
    assert (use.name, use.gpu) == ("sleep", {0: 3764387840})
    assert reading.infos[sleeper.pid].command == ("sleep", "60")
    assert reading.infos[sleeper.pid].user == psutil.Process().username()
    fields = next(fields for fields in reading.sample["processes"] if fields["pid"] == sleeper.pid)
    assert fields["gpu"] == 3764387840
    assert set(fields) == {"pid", "name", "rss", "children", "gpu"}
    assert reading.sample["gpus"] == [
        {"index": 0, "name": "NVIDIA H200", "total": 150754820096, "free": 146336251904, "utilization": 35}
    ]


def test_a_process_outside_the_container_is_listed_without_ram(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oomph.machine.GpuMemoryReader.read", lambda self: (h200_reading(2**22 + 5),))
    watcher = Watcher()
    reading = watcher.read()
    assert (reading.processes[0].pid, reading.processes[0].members) == (2**22 + 5, ())
    assert 2**22 + 5 not in {process["pid"] for process in reading.sample["processes"]}
    assert watcher.read_progress(2**22 + 5) is None
    watcher.close()


def test_all_processes_on_gpus_are_in_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    pids = [pid for pid in psutil.pids() if psutil.Process(pid).memory_info().rss and pid != os.getpid()][:12]
    gpu = GpuReading(0, "GPU", 80 * GIB, GIB, None, tuple((pid, GIB) for pid in pids))
    monkeypatch.setattr("oomph.machine.GpuMemoryReader.read", lambda self: (gpu,))
    sample = MachineProbe().read()
    assert sum(process["gpu"] for process in sample["processes"] if "gpu" in process) >= (len(pids) - 1) * GIB


def test_a_process_tree_is_listed_member_by_member(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    monkeypatch.setattr("oomph.machine.GpuMemoryReader.read", lambda self: (h200_reading(child.pid),))
    watcher = Watcher(os.getpid())
    reading = watcher.read()
    members = {use.pid: use for use in reading.processes}
    assert reading.processes[0].pid == os.getpid()
    assert reading.processes[0].rss > 10 * MIB
    assert members[child.pid].gpu_bytes == 3764387840
    assert reading.sample["gpus"][0]["tree_used"] == 3764387840
    assert watcher.is_alive
    with Recorder(tmp_path / "run") as record:
        time.sleep(0.01)  # written last, of all Records that are open in this process
        record.step({"step": 3})
        progress = watcher.read_progress(os.getpid())
    assert progress is not None
    assert progress.step == 3
    assert watcher.read_progress(child.pid) is None
    child.communicate(b"\n")
    assert child.pid not in {use.pid for use in watcher.read().processes}
    watcher.close()


def test_the_list_of_processes_is_read_rarely_if_it_is_expensive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oomph.monitor._machine_probe._MAX_SCAN_FRACTION", 1e-9)
    probe = MachineProbe()
    scans: list[int] = []
    process_iter = psutil.process_iter

    def scan(fields: list[str]) -> Iterator[psutil.Process]:
        scans.append(1)
        yield from process_iter(fields)

    monkeypatch.setattr(psutil, "process_iter", scan)
    for _ in range(3):
        probe.read()
    probe.close()
    assert len(scans) == 1


def test_a_missing_process_is_rejected() -> None:
    with pytest.raises(UsageError, match="there is no process 999999999"):
        Watcher(999999999)
