from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

import oomph
from oomph.errors import UsageError
from oomph.monitor import Recorder, Sampler, load_record
from oomph.units import MIB


@pytest.mark.medium
def test_sampler_writes_until_it_is_stopped(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    with Recorder(file) as recorder:
        with Sampler(recorder, interval=0.02):
            time.sleep(0.3)
        written = len(load_record(file).samples)
        time.sleep(0.1)
        assert len(load_record(file).samples) == written
    assert 3 <= written <= 20
    assert not [thread for thread in threading.enumerate() if thread.name == "oomph-sampler"]


def test_failing_sampler_reports_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("oomph.monitor._probe.Probe.read", broken)
    with oomph.watch(tmp_path / "run.jsonl", interval=0.01):
        time.sleep(0.1)
    events = [event["event"] for event in load_record(tmp_path / "run.jsonl").events]
    assert events == ["sampler-failed", "end"]


@pytest.mark.parametrize("interval", [0, -1, float("nan")])
def test_invalid_interval_is_rejected(interval: float, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="interval"), oomph.watch(tmp_path / "run.jsonl", interval=interval):
        pass


def test_watch_records_this_process_and_its_final_error(tmp_path: Path) -> None:
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
