from __future__ import annotations

import os
import sys

import psutil
import pytest

from oomph.machine import GpuReading
from oomph.monitor import ProcessMemory, ProcessUse
from oomph.monitor._process_use import (
    ProcessInfo,
    ProcessInfoCache,
    gpu_bytes_by_pid,
    largest_first,
    read_process_info,
    sum_gpu_bytes,
)
from oomph.units import GIB


def test_gpu_memory_is_summed_by_gpu() -> None:
    readings = [
        GpuReading(0, "a", 8 * GIB, 0, None, ((7, GIB), (8, None))),
        GpuReading(1, "b", 8 * GIB, 0, None, ((7, 2 * GIB),)),
        GpuReading(2, "c", 8 * GIB, 0, None, None),
    ]
    sizes = gpu_bytes_by_pid(readings)
    assert sizes == {7: {0: GIB, 1: 2 * GIB}, 8: {0: 0}}
    assert sum_gpu_bytes((8, 7, 9), sizes) == {0: GIB, 1: 2 * GIB}


def test_processes_on_a_gpu_come_first() -> None:
    uses = [
        ProcessUse(1, "large", (ProcessMemory(1, 9 * GIB),)),
        ProcessUse(2, "unknown size", (ProcessMemory(2, 1),), {0: 0}),
        ProcessUse(3, "gpu", (ProcessMemory(3, 1),), {0: GIB}),
    ]
    assert [use.pid for use in largest_first(uses)] == [3, 2, 1]


def test_info_of_this_process() -> None:
    info = read_process_info(os.getpid())
    process = psutil.Process()
    assert (info.name, info.user, info.start_time) == (process.name(), process.username(), process.create_time())
    assert info.command[0].startswith(sys.executable[:4])


@pytest.mark.parametrize("pid", [999999999, 2**70, -1])
def test_a_process_that_does_not_exist_has_no_info(pid: int) -> None:
    assert read_process_info(pid) == ProcessInfo()


def test_info_that_is_denied_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(_: object) -> str:
        raise psutil.AccessDenied

    def no_such_user(_: object) -> str:
        raise KeyError(1234)

    monkeypatch.setattr(psutil.Process, "cmdline", denied)
    monkeypatch.setattr(psutil.Process, "username", no_such_user)
    info = read_process_info(os.getpid())
    assert (info.user, info.command) == ("", ())
    assert info.name != "?"


def test_infos_are_read_once_and_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[int] = []

    def read(pid: int) -> ProcessInfo:
        reads.append(pid)
        return ProcessInfo(str(pid))

    monkeypatch.setattr("oomph.monitor._process_use.read_process_info", read)
    infos = ProcessInfoCache()
    assert [infos[7].name, infos[7].name, infos[8].name] == ["7", "7", "8"]
    infos.keep_only([8])
    assert (infos[8].name, infos[7].name) == ("8", "7")
    assert reads == [7, 8, 7]
