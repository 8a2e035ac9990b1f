"""Values that the NVIDIA driver reports through NVML, as plain data.

The data can be stored as JSON, so that a recording from any machine can be parsed like this machine's data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

NvmlData = dict[str, Any]


def import_nvml() -> Any:
    """Import pynvml, which takes 50 ms: only callers that read GPUs should pay for it."""
    import pynvml  # noqa: PLC0415

    return pynvml


def query_nvml() -> NvmlData:
    """Query NVML for everything oomph uses; a missing driver or GPU is a result, not an error."""
    nvml = import_nvml()
    try:
        nvml.nvmlInit()
    except nvml.NVMLError_LibraryNotFound:
        return {"state": "no driver", "reason": "the NVIDIA driver is not installed"}
    except nvml.NVMLError as error:
        return {"state": "driver failed", "reason": str(error)}
    try:
        return query_driver(nvml)
    finally:
        nvml.nvmlShutdown()


def query_driver(nvml: Any) -> NvmlData:
    """Query an initialized NVML for its driver and GPUs."""
    versions = {
        "driver": _call(nvml.nvmlSystemGetDriverVersion),
        "cuda": _call(nvml.nvmlSystemGetCudaDriverVersion_v2),
    }
    count = _call(nvml.nvmlDeviceGetCount)
    if "error" in count:
        return {"state": "driver failed", "reason": count["error"], **versions, "devices": []}
    return {
        "state": "ready" if count["value"] else "no gpu",
        "reason": "" if count["value"] else "the driver reports no GPU",
        **versions,
        "devices": [_query_device(nvml, index) for index in range(count["value"])],
    }


def _query_device(nvml: Any, index: int) -> NvmlData:
    # A GPU that fell off the bus has no handle; the others still work.
    lookup = _call(nvml.nvmlDeviceGetHandleByIndex, index)
    handle = lookup.get("value")
    # The driver renamed "throttle reasons" to "clocks event reasons"; older bindings have only the old name.
    reasons = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
    queries: dict[str, Callable[[], Any]] = {
        "name": lambda: nvml.nvmlDeviceGetName(handle),
        "memory": lambda: _memory(nvml.nvmlDeviceGetMemoryInfo(handle)),
        "processes": lambda: _processes(nvml, handle),
        "capability": lambda: list(nvml.nvmlDeviceGetCudaComputeCapability(handle)),
        "ecc": lambda: bool(nvml.nvmlDeviceGetEccMode(handle)[0]),
        "mig": lambda: bool(nvml.nvmlDeviceGetMigMode(handle)[0]),
        "throttle_reasons": lambda: (reasons or nvml.nvmlDeviceGetCurrentClocksThrottleReasons)(handle),
    }
    return {name: lookup if "error" in lookup else _call(query) for name, query in queries.items()}


def _memory(info: Any) -> NvmlData:
    return {"total": info.total, "free": info.free, "used": info.used}


def _processes(nvml: Any, handle: Any) -> list[NvmlData]:
    compute, graphics = list_processes(nvml, handle)
    return [
        {
            "pid": pid,
            "used": used,
            "name": _call(nvml.nvmlSystemGetProcessName, pid),
            "graphics": pid not in compute,
        }
        for pid, used in sorted({**graphics, **compute}.items())
    ]


def list_processes(nvml: Any, handle: Any) -> tuple[dict[int, int | None], dict[int, int | None]]:
    """Return the bytes of GPU memory by pid, of compute and of graphics processes.

    Raises:
        NVMLError: The driver doesn't list compute processes. Some drivers list only those; that is not an error.
    """
    compute = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    graphics = _call(nvml.nvmlDeviceGetGraphicsRunningProcesses, handle).get("value", ())
    return (
        {process.pid: process.usedGpuMemory for process in compute},
        {process.pid: process.usedGpuMemory for process in graphics},
    )


def _call(query: Callable[..., Any], *arguments: object) -> NvmlData:
    try:
        value = query(*arguments)
    except import_nvml().NVMLError as error:
        return {"error": str(error)}
    except UnicodeDecodeError:
        # The bindings decode names as UTF-8, but a process may have any bytes as its name.
        return {"error": "its name is not UTF-8"}
    return {"value": value.decode(errors="replace") if isinstance(value, bytes) else value}
