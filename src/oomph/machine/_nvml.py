"""What the NVIDIA driver answers, as plain data: the only file that imports pynvml.

The answers can be written to JSON as they are, so a recording from any machine can be read as if it were this one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Answers = dict[str, Any]


def ask_driver() -> Answers:
    """Ask NVML everything we want to know; a missing driver or GPU is an answer, not an error."""
    import pynvml  # noqa: PLC0415  50 ms that only a caller who wants GPUs should pay

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError_LibraryNotFound:
        return {"state": "no driver", "why": "the NVIDIA driver is not installed"}
    except pynvml.NVMLError as error:
        return {"state": "driver failed", "why": str(error)}
    try:
        return _ask(pynvml)
    finally:
        pynvml.nvmlShutdown()


def _ask(nvml: Any) -> Answers:
    count = nvml.nvmlDeviceGetCount()
    return {
        "state": "ready" if count else "no gpu",
        "why": "" if count else "the driver sees no GPU",
        "driver": _answer(nvml.nvmlSystemGetDriverVersion),
        "cuda": _answer(nvml.nvmlSystemGetCudaDriverVersion_v2),
        "devices": [_ask_device(nvml, nvml.nvmlDeviceGetHandleByIndex(index)) for index in range(count)],
    }


def _ask_device(nvml: Any, handle: Any) -> Answers:
    reasons = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
    return {
        "name": _answer(nvml.nvmlDeviceGetName, handle),
        "memory": _answer(lambda: _memory(nvml.nvmlDeviceGetMemoryInfo(handle))),
        "processes": _answer(lambda: _processes(nvml, handle)),
        "capability": _answer(lambda: list(nvml.nvmlDeviceGetCudaComputeCapability(handle))),
        "ecc": _answer(lambda: bool(nvml.nvmlDeviceGetEccMode(handle)[0])),
        "mig": _answer(lambda: bool(nvml.nvmlDeviceGetMigMode(handle)[0])),
        # The driver renamed "throttle reasons" to "clocks event reasons"; the older bindings know only the first.
        "slowdown": _answer(reasons or nvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle),
    }


def _memory(info: Any) -> Answers:
    return {"total": info.total, "free": info.free, "used": info.used}


def _processes(nvml: Any, handle: Any) -> list[Answers]:
    found = {
        process.pid: process
        for ask in (nvml.nvmlDeviceGetComputeRunningProcesses, nvml.nvmlDeviceGetGraphicsRunningProcesses)
        for process in ask(handle)
    }
    return [
        {"pid": pid, "used": process.usedGpuMemory, "name": _answer(nvml.nvmlSystemGetProcessName, pid)}
        for pid, process in sorted(found.items())
    ]


def _answer(ask: Callable[..., Any], *arguments: object) -> Answers:
    import pynvml  # noqa: PLC0415

    try:
        value = ask(*arguments)
    except pynvml.NVMLError as error:
        return {"error": str(error)}
    return {"value": value.decode() if isinstance(value, bytes) else value}
