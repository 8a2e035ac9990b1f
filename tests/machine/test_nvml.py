"""Drivers that refuse some questions: a stand-in for the bindings, with the errors that the real ones raise."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from oomph.machine import DriverState
from oomph.machine._fact import Unknown
from oomph.machine._gpu import read_graphics
from oomph.machine._nvml import _ask
from oomph.units import GIB


def driver(**changes: Any) -> SimpleNamespace:
    """A driver with two GPUs, and one process on each."""
    answers: dict[str, Any] = {
        "nvmlSystemGetDriverVersion": lambda: "580.1",
        "nvmlSystemGetCudaDriverVersion_v2": lambda: 13000,
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetName": lambda _: b"NVIDIA T4",
        "nvmlDeviceGetMemoryInfo": lambda _: SimpleNamespace(total=16 * GIB, free=14 * GIB, used=2 * GIB),
        "nvmlDeviceGetComputeRunningProcesses": lambda _: [SimpleNamespace(pid=7, usedGpuMemory=GIB)],
        "nvmlDeviceGetGraphicsRunningProcesses": lambda _: [SimpleNamespace(pid=8, usedGpuMemory=5)],
        "nvmlSystemGetProcessName": lambda pid: f"/usr/bin/p{pid}",
        "nvmlDeviceGetCudaComputeCapability": lambda _: (7, 5),
        "nvmlDeviceGetEccMode": lambda _: (1, 1),
        "nvmlDeviceGetMigMode": refuse,
        "nvmlDeviceGetCurrentClocksEventReasons": lambda _: 0,
    }
    return SimpleNamespace(**{**answers, **changes})


def refuse(*_: object) -> None:
    raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)


def test_compute_and_graphics_processes_are_told_apart() -> None:
    found = read_graphics(_ask(driver())).gpus[0].processes.known
    assert found is not None
    assert [(one.pid, one.name.known, one.graphics) for one in found] == [(7, "p7", False), (8, "p8", True)]


def test_a_driver_that_cannot_count_its_gpus_has_failed() -> None:
    graphics = read_graphics(_ask(driver(nvmlDeviceGetCount=refuse)))
    assert (graphics.state, graphics.gpus) == (DriverState.FAILED, ())
    assert graphics.why == "Not Supported"
    assert graphics.driver.known == "580.1"


def test_a_lost_gpu_does_not_take_the_others_with_it() -> None:
    def handle(index: int) -> int:
        if index == 0:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        return index

    lost, well = read_graphics(_ask(driver(nvmlDeviceGetHandleByIndex=handle))).gpus
    assert lost.total.value == Unknown("GPU is lost")
    assert well.total.known == 16 * GIB


def test_compute_processes_are_kept_where_graphics_processes_are_not_listed() -> None:
    found = read_graphics(_ask(driver(nvmlDeviceGetGraphicsRunningProcesses=refuse))).gpus[0].processes.known
    assert found is not None
    assert [one.pid for one in found] == [7]


@pytest.mark.parametrize("undecoded", [True, False])
def test_a_process_with_any_bytes_for_a_name_is_listed(undecoded: bool) -> None:  # noqa: FBT001
    def name(_: int) -> bytes | str:
        return b"/opt/\xff\xfe" if undecoded else b"/opt/\xff\xfe".decode()

    found = read_graphics(_ask(driver(nvmlSystemGetProcessName=name))).gpus[0].processes.known
    assert found is not None
    assert [one.pid for one in found] == [7, 8]
