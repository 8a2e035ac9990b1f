"""Drivers that reject some queries: a stand-in for pynvml with the errors that the real one raises."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from oomph.machine import DriverState, Gpu, GpuProcess, Unknown
from oomph.machine.gpu import parse_driver, query_nvml
from oomph.machine.gpu._nvml import query_driver
from oomph.units import GIB


def fake_nvml(**changes: Any) -> SimpleNamespace:
    """Return a stand-in with two GPUs and a compute and a graphics process on each."""
    functions: dict[str, Any] = {
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
        "nvmlDeviceGetMigMode": not_supported,
        "nvmlDeviceGetCurrentClocksEventReasons": lambda _: 0,
    }
    return SimpleNamespace(**{**functions, **changes})


def not_supported(*_: object) -> None:
    raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)


def read_gpus(**changes: Any) -> tuple[Gpu, ...]:
    return parse_driver(query_driver(fake_nvml(**changes))).gpus


def read_processes(**changes: Any) -> tuple[GpuProcess, ...]:
    processes = read_gpus(**changes)[0].processes.known
    assert processes is not None
    return processes


def test_driver_of_this_machine_is_queried() -> None:
    assert query_nvml()["state"] in {"no driver", "ready", "no gpu", "driver failed"}


def test_compute_and_graphics_processes_are_distinguished() -> None:
    processes = [(process.pid, process.name.known, process.graphics) for process in read_processes()]
    assert processes == [(7, "p7", False), (8, "p8", True)]


def test_driver_that_cannot_count_its_gpus_has_failed() -> None:
    driver = parse_driver(query_driver(fake_nvml(nvmlDeviceGetCount=not_supported)))
    assert (driver.state, driver.gpus) == (DriverState.FAILED, ())
    assert driver.reason == "Not Supported"
    assert driver.version.known == "580.1"


def test_lost_gpu_does_not_hide_the_others() -> None:
    def handle(index: int) -> int:
        if index == 0:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        return index

    lost, healthy = read_gpus(nvmlDeviceGetHandleByIndex=handle)
    assert lost.total.value == Unknown("GPU is lost")
    assert healthy.total.known == 16 * GIB


def test_compute_processes_are_listed_without_graphics_processes() -> None:
    processes = read_processes(nvmlDeviceGetGraphicsRunningProcesses=not_supported)
    assert [process.pid for process in processes] == [7]


@pytest.mark.parametrize("decodes", [False, True])
def test_process_with_a_name_that_is_not_utf8_is_listed(decodes: bool) -> None:  # noqa: FBT001
    def name(_: int) -> bytes | str:
        return b"/usr/\xff\xfe".decode() if decodes else b"/usr/\xff\xfe"

    assert [process.pid for process in read_processes(nvmlSystemGetProcessName=name)] == [7, 8]
