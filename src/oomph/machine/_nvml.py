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
    about = {
        "driver": _answer(nvml.nvmlSystemGetDriverVersion),
        "cuda": _answer(nvml.nvmlSystemGetCudaDriverVersion_v2),
    }
    count = _answer(nvml.nvmlDeviceGetCount)
    if "error" in count:
        return {"state": "driver failed", "why": count["error"], **about, "devices": []}
    return {
        "state": "ready" if count["value"] else "no gpu",
        "why": "" if count["value"] else "the driver sees no GPU",
        **about,
        "devices": [_ask_device(nvml, index) for index in range(count["value"])],
    }


def _ask_device(nvml: Any, index: int) -> Answers:
    # A GPU that fell off the bus has no handle; the others are still there.
    found = _answer(nvml.nvmlDeviceGetHandleByIndex, index)
    handle = found.get("value")
    reasons = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
    questions: dict[str, Callable[[], Any]] = {
        "name": lambda: nvml.nvmlDeviceGetName(handle),
        "memory": lambda: _memory(nvml.nvmlDeviceGetMemoryInfo(handle)),
        "processes": lambda: _processes(nvml, handle),
        "capability": lambda: list(nvml.nvmlDeviceGetCudaComputeCapability(handle)),
        "ecc": lambda: bool(nvml.nvmlDeviceGetEccMode(handle)[0]),
        "mig": lambda: bool(nvml.nvmlDeviceGetMigMode(handle)[0]),
        # The driver renamed "throttle reasons" to "clocks event reasons"; the older bindings know only the first.
        "slowdown": lambda: (reasons or nvml.nvmlDeviceGetCurrentClocksThrottleReasons)(handle),
    }
    return {name: found if "error" in found else _answer(ask) for name, ask in questions.items()}


def _memory(info: Any) -> Answers:
    return {"total": info.total, "free": info.free, "used": info.used}


def _processes(nvml: Any, handle: Any) -> list[Answers]:
    compute = {process.pid: process for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle)}
    # Some drivers list only compute processes: what they say of those still counts.
    listed = _answer(nvml.nvmlDeviceGetGraphicsRunningProcesses, handle).get("value", ())
    drawing = {process.pid: process for process in listed}
    return [
        {
            "pid": pid,
            "used": process.usedGpuMemory,
            "name": _answer(nvml.nvmlSystemGetProcessName, pid),
            "graphics": pid not in compute,
        }
        for pid, process in sorted({**drawing, **compute}.items())
    ]


def _answer(ask: Callable[..., Any], *arguments: object) -> Answers:
    import pynvml  # noqa: PLC0415

    try:
        value = ask(*arguments)
    except pynvml.NVMLError as error:
        return {"error": str(error)}
    except UnicodeDecodeError:
        # The bindings decode names as UTF-8; a process may be called anything.
        return {"error": "its name is not UTF-8"}
    return {"value": value.decode(errors="replace") if isinstance(value, bytes) else value}
