from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

import oomph
from oomph.errors import UsageError
from oomph.machine import GpuReading
from oomph.monitor import MachineProbe, Probe, Recorder, Sampler, load_record
from oomph.units import GIB, MIB

_PARENT = """
import subprocess, sys
held = bytearray(b"x" * (60 << 20))
child = subprocess.Popen([sys.executable, "-c", "held = bytearray(b'x' * (40 << 20)); print('ready', flush=True); input()"], stdin=subprocess.PIPE)
child.wait()
"""  # noqa: E501


@pytest.fixture
def family() -> Iterator[subprocess.Popen[bytes]]:
    """A process with 60 MiB and a child with 40."""
    process = subprocess.Popen([sys.executable, "-c", _PARENT], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    yield process
    for one in psutil.Process(process.pid).children() if process.poll() is None else []:
        one.kill()
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_tree_is_counted_with_its_children(family: subprocess.Popen[bytes]) -> None:
    with Probe(family.pid) as probe:
        found = probe.read()
    assert found["workers"] == 1
    assert found["own_rss"] > 60 * MIB
    assert found["rss"] > found["own_rss"] + 40 * MIB
    assert 100 * MIB < found["pss"] <= found["rss"]
    assert found["ram_total"] == psutil.virtual_memory().total


def test_the_end_of_a_process_is_seen_also_before_it_is_collected(family: subprocess.Popen[bytes]) -> None:
    with Probe(family.pid) as probe:
        assert bool(probe.tree.alive) is True
        for one in psutil.Process(family.pid).children():
            one.kill()
        family.kill()
        time.sleep(0.2)
        assert bool(probe.tree.alive) is False
        probe.read()


def test_a_process_that_is_not_there_is_one_sentence() -> None:
    with pytest.raises(UsageError, match="there is no process 999999999"):
        Probe(999999999)


def test_rates_come_with_the_second_reading() -> None:
    with Probe() as probe:
        assert "swap_in" not in probe.read()
        time.sleep(0.01)
        assert probe.read()["swap_in"] >= 0


def gpu(*processes: tuple[int, int | None]) -> GpuReading:
    return GpuReading(0, "GPU", 8 * GIB, GIB, 50, processes or None)


def test_memory_of_the_gpu_is_told_apart_by_process(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = [gpu((os.getpid(), 2 * GIB), (1, 3 * GIB)), gpu(), gpu((2**22 + 5, 3 * GIB))]
    monkeypatch.setattr("oomph.machine.GpuMemoryReader.read", lambda self: (readings.pop(0),))
    with Probe() as probe:
        told = probe.read()["gpus"][0]
        assert (told["ours"], told["others"], told["other_pid"], told["busy"]) == (2 * GIB, 3 * GIB, 1, 50)
        unseen = probe.read()["gpus"][0]
        assert "ours" not in unseen
        assert "others" not in unseen
        # A number that doesn't exist here comes from outside of the container: it may well be us.
        assert "others" not in probe.read()["gpus"][0]


def test_only_the_wanted_gpu_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oomph.machine.GpuMemoryReader.read", lambda self: (gpu(),))
    with Probe(device=0) as first, Probe(device=1) as second:
        assert len(first.read()["gpus"]) == 1
        assert "gpus" not in second.read()


def test_torch_s_allocator_is_asked_only_where_cuda_has_started(monkeypatch: pytest.MonkeyPatch) -> None:
    started = False
    stats = {
        "reserved_bytes.all.peak": 5,
        "allocated_bytes.all.current": 1,
        "allocated_bytes.all.peak": 4,
        "reserved_bytes.all.current": 5,
        "num_alloc_retries": 2,
        "num_ooms": 1,
    }
    cuda = SimpleNamespace(is_initialized=lambda: started, device_count=lambda: 1, memory_stats=lambda device: stats)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    with Probe() as probe:
        assert "torch" not in probe.read()
        started = True
        (told,) = probe.read()["torch"]
    assert (told["allocated"], told["alloc_retries"], told["ooms"]) == (1, 2, 1)


def test_sampling_imports_no_torch() -> None:
    code = "import sys; from oomph.monitor import Probe; Probe().read(); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_sampler_writes_until_it_is_left(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    with Recorder(file) as recorder:
        with Sampler(recorder, interval=0.02):
            time.sleep(0.3)
        written = len(load_record(file).samples)
        time.sleep(0.1)
        assert len(load_record(file).samples) == written
    assert 3 <= written <= 20
    assert not [thread for thread in threading.enumerate() if thread.name == "oomph-sampler"]


def test_a_sampler_that_fails_says_so_once_and_disturbs_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("oomph.monitor._probe.Probe.read", broken)
    with oomph.watch(tmp_path / "run.jsonl", interval=0.01):
        time.sleep(0.1)
    events = [event["event"] for event in load_record(tmp_path / "run.jsonl").events]
    assert events == ["sampler-failed", "end"]


@pytest.mark.parametrize("interval", [0, -1, float("nan")])
def test_an_interval_that_is_no_time_is_refused(interval: float, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="interval"), oomph.watch(tmp_path / "run.jsonl", interval=interval):
        pass


def test_watch_records_this_process_and_the_error_that_ends_it(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"

    def fail() -> None:
        with oomph.watch(file, interval=0.05) as record:
            record.step({"step": 0})
            raise MemoryError("Unable to allocate 3 GiB for an array")

    with pytest.raises(MemoryError):
        fail()
    record = load_record(file)
    assert record.samples[0]["rss"] > 10 * MIB
    (error, end) = record.events
    assert (error["event"], error["error"], error["kind"], end["event"]) == (
        "error",
        "MemoryError",
        "memory-error",
        "end",
    )


def test_the_machine_shows_what_looks_like_training(family: subprocess.Popen[bytes]) -> None:
    survey = MachineProbe()
    found = survey.read()
    survey.close()
    assert found["ram_total"] > 0
    assert family.pid in {row["pid"] for row in found["processes"]}
    assert all(row["rss"] > 0 for row in found["processes"])
    children = {one.pid for one in psutil.Process(family.pid).children()}
    assert not children & {row["pid"] for row in found["processes"]}
