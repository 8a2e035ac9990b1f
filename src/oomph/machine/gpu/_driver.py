"""The NVIDIA driver, its GPUs and the processes on them, parsed from NVML data."""

from __future__ import annotations

import enum
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, TypeVar

from ...units import GIB
from .._fact import Fact, Unknown, unknown
from ._nvml import NvmlData

T = TypeVar("T")

# The bits of NVML's clocks event reasons that reduce speed and that a user can do something about.
_THROTTLE_REASONS = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "hot GPU",
    0x40: "hot GPU, forced by hardware",
    0x80: "power brake, forced by hardware",
}
# An idle driver uses some GPU memory itself; beyond this size, a process must be using the GPU.
MAX_DRIVER_BYTES = GIB


class DriverState(enum.Enum):
    """State of the NVIDIA driver."""

    READY = "ready"
    NO_GPU = "no gpu"
    NO_DRIVER = "no driver"
    FAILED = "driver failed"


@dataclass(frozen=True)
class GpuProcess:
    """A process that uses GPU memory.

    Attributes:
        pid: The process id.
        name: Its program.
        used: Bytes of GPU memory.
        is_self: True if it is this process.
        graphics: True if it only draws, as a desktop does.
    """

    pid: int
    name: Fact[str]
    used: Fact[int]
    is_self: bool
    graphics: bool


@dataclass(frozen=True)
class Gpu:
    """A GPU as the driver reports it; sizes are in bytes.

    Attributes:
        index: The driver's index; `CUDA_VISIBLE_DEVICES` may renumber GPUs for a program.
        name: The product name.
        total: Memory, the driver's own part included.
        free: Memory that is not in use.
        used: Memory in use, the driver's own part included.
        processes: The processes on it; unknown if memory is in use but no process is visible, as in a container.
        compute_capability: Such as "9.0".
        ecc: True if error correction is on.
        mig: True if the GPU is partitioned into MIG instances.
        throttle_reasons: Reasons why its clocks are currently reduced.
    """

    index: int
    name: Fact[str]
    total: Fact[int]
    free: Fact[int]
    used: Fact[int]
    processes: Fact[tuple[GpuProcess, ...]]
    compute_capability: Fact[str]
    ecc: Fact[bool]
    mig: Fact[bool]
    throttle_reasons: Fact[tuple[str, ...]]


@dataclass(frozen=True)
class NvidiaDriver:
    """The NVIDIA driver and its GPUs.

    Attributes:
        state: Ready, or the kind of problem.
        reason: The problem as text; empty if the driver is ready.
        version: The driver's version.
        cuda: The newest CUDA version that the driver supports.
        gpus: All GPUs that it reports.
    """

    state: DriverState
    reason: str
    version: Fact[str]
    cuda: Fact[str]
    gpus: tuple[Gpu, ...]


def parse_driver(data: NvmlData) -> NvidiaDriver:
    """Convert NVML data to facts."""
    state, reason = DriverState(data["state"]), data["reason"]
    if "driver" not in data:
        return NvidiaDriver(state, reason, unknown(reason, "NVML"), unknown(reason, "NVML"), ())
    return NvidiaDriver(
        state=state,
        reason=reason,
        version=_fact(data["driver"], "NVML driver version", str),
        cuda=_fact(data["cuda"], "NVML CUDA driver version", lambda n: f"{n // 1000}.{n % 1000 // 10}"),
        gpus=tuple(_parse_gpu(index, device) for index, device in enumerate(data["devices"])),
    )


def _parse_gpu(index: int, device: NvmlData) -> Gpu:
    source = f"NVML GPU {index}"
    memory = device["memory"]
    return Gpu(
        index=index,
        name=_fact(device["name"], source, str),
        total=_fact(memory, f"{source} memory", lambda info: int(info["total"])),
        free=_fact(memory, f"{source} memory", lambda info: int(info["free"])),
        used=_fact(memory, f"{source} memory", lambda info: int(info["used"])),
        processes=_parse_processes(device, f"{source} processes"),
        compute_capability=_fact(device["capability"], source, lambda pair: ".".join(map(str, pair))),
        ecc=_fact(device["ecc"], f"{source} ECC mode", bool),
        mig=_fact(device["mig"], f"{source} MIG mode", bool),
        throttle_reasons=_fact(device["throttle_reasons"], f"{source} clocks event reasons", _throttle_reasons),
    )


def _parse_processes(device: NvmlData, source: str) -> Fact[tuple[GpuProcess, ...]]:
    data, memory = device["processes"], device["memory"].get("value")
    if data.get("value") == [] and memory and memory["used"] > MAX_DRIVER_BYTES:
        return unknown("memory is in use, but the processes that use it are not visible from here", source)
    return _fact(data, source, lambda processes: tuple(_parse_process(process, source) for process in processes))


def _parse_process(data: NvmlData, source: str) -> GpuProcess:
    used = data["used"]
    return GpuProcess(
        pid=data["pid"],
        name=_fact(data["name"], source, lambda path: PurePath(str(path).split(" ")[0]).name),
        used=unknown("the driver doesn't report it (in containers and on Windows)", source)
        if used is None
        else Fact(used, source),
        is_self=data["pid"] == os.getpid(),
        graphics=bool(data.get("graphics")),
    )


def _throttle_reasons(bits: int) -> tuple[str, ...]:
    return tuple(reason for bit, reason in _THROTTLE_REASONS.items() if bits & bit)


def _fact(data: NvmlData, source: str, convert: Callable[[Any], T]) -> Fact[T]:
    if "error" in data:
        return Fact(Unknown(data["error"]), source)
    return Fact(convert(data["value"]), source)
