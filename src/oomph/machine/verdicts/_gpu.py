"""Verdicts on GPUs and their driver."""

from __future__ import annotations

from collections.abc import Iterator

from ...units import GIB, format_size
from .._fact import Unknown
from .._machine import Machine
from ..gpu import MAX_DRIVER_BYTES, DriverState, Gpu, GpuProcess
from ..host import EnvironmentKind
from ._fixes import as_administrator
from ._verdict import DataLoaderConfig, Severity, Verdict

_MIN_REPORTED_BYTES = GIB // 2  # GPU memory of other processes that is worth a verdict


def driver_failed(machine: Machine, _: DataLoaderConfig) -> Iterator[Verdict]:
    """Report a driver that is installed but doesn't work."""
    if machine.driver.state is DriverState.FAILED:
        yield Verdict(
            Severity.FAILS,
            "driver-failed",
            f"The NVIDIA driver is installed but doesn't work: {machine.driver.reason}.",
            "No GPU can be used. After a driver update, a restart fixes this.",
            ("$ nvidia-smi", *_restart(machine)),
            ("NVML",),
        )


def gpu_lost(machine: Machine, _: DataLoaderConfig) -> Iterator[Verdict]:
    """Report a GPU that doesn't answer the driver."""
    for gpu in machine.gpus:
        if isinstance(gpu.name.value, Unknown) and isinstance(gpu.total.value, Unknown):
            yield Verdict(
                Severity.FAILS,
                "gpu-lost",
                f"GPU {gpu.index} doesn't respond to the driver: {gpu.name.value.unknown}.",
                "It can't be used, and programs that open all GPUs may hang or fail.",
                ("Restart the machine. If that doesn't help, check the card, its power supply and its slot.",),
                (gpu.name.source,),
            )


def _restart(machine: Machine) -> tuple[str, ...]:
    if machine.environment.system == "windows" or machine.environment.inside(EnvironmentKind.WSL):
        return ("Restart Windows.",)
    return as_administrator(machine, "$ sudo reboot")


def gpu_memory_used(machine: Machine, _: DataLoaderConfig) -> Iterator[Verdict]:
    """Report GPU memory that other processes use."""
    for gpu in machine.gpus:
        if isinstance(gpu.processes.value, Unknown):
            yield from _used_by_hidden_processes(machine, gpu)
        else:
            yield from _used_by_others(machine, gpu, [process for process in gpu.processes.value if _counts(process)])


def _counts(process: GpuProcess) -> bool:
    """Return True for other processes; a desktop's few megabytes are ignored."""
    return not process.is_self and not (process.graphics and (process.used.known or 0) < _MIN_REPORTED_BYTES)


def _used_by_others(machine: Machine, gpu: Gpu, others: list[GpuProcess]) -> Iterator[Verdict]:
    sizes = [process.used.known for process in others]
    # The GPU's total use includes the driver's own memory, so it counts only if a process doesn't report its size.
    used = gpu.used.known if None in sizes else sum(size for size in sizes if size is not None)
    if not others or used is None or used < _MIN_REPORTED_BYTES:
        return
    yield Verdict(
        Severity.RISKY,
        "gpu-memory-used",
        f"{format_size(used)} of {_memory_of(gpu)} is used by {', '.join(map(_describe, others))}.",
        "Training can use only the rest.",
        _kill(machine, [process.pid for process in others]),
        (gpu.used.source, gpu.processes.source),
    )


def _used_by_hidden_processes(machine: Machine, gpu: Gpu) -> Iterator[Verdict]:
    used = gpu.used.known
    if used is None or used < MAX_DRIVER_BYTES:
        return
    if machine.environment.inside(EnvironmentKind.WSL):
        fix = ("They may run on Windows: look in its Task Manager under Details, or run there:", "$ nvidia-smi")
    elif machine.environment.inside(EnvironmentKind.CONTAINER):
        fix = ("List them from outside the container:", "$ nvidia-smi")
    else:
        fix = ("Look for processes of other users and containers:", "$ nvidia-smi")
    yield Verdict(
        Severity.RISKY,
        "gpu-memory-used",
        f"{format_size(used)} of {_memory_of(gpu)} is used by processes that are not visible from here.",
        "Training can use only the rest.",
        fix,
        (gpu.used.source, gpu.processes.source),
    )


def _memory_of(gpu: Gpu) -> str:
    total = "memory" if gpu.total.known is None else format_size(gpu.total.known)
    return f"the {total} of GPU {gpu.index} ({gpu.name.known or 'unknown model'})"


def _kill(machine: Machine, pids: list[int]) -> tuple[str, ...]:
    if machine.environment.system == "windows":
        return (f"$ taskkill {' '.join(f'/PID {pid}' for pid in pids)}",)
    if machine.environment.inside(EnvironmentKind.WSL):
        return ("Stop them where they run, here or on the Windows side.",)
    return (f"$ kill {' '.join(map(str, pids))}",)


def _describe(process: GpuProcess) -> str:
    name = process.name.known or "a process with a hidden name"
    size = f", {format_size(process.used.known)}" if process.used.known is not None else ""
    return f"{name} (pid {process.pid}{size})"


def gpu_throttled(machine: Machine, _: DataLoaderConfig) -> Iterator[Verdict]:
    """Report a GPU with reduced clocks."""
    for gpu in machine.gpus:
        if gpu.throttle_reasons.known:
            yield Verdict(
                Severity.NOTE,
                "gpu-throttled",
                f"GPU {gpu.index} runs at reduced clocks: {', '.join(gpu.throttle_reasons.known)}.",
                "Steps take longer than predicted. Memory is not affected.",
                ("$ nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER",),
                (gpu.throttle_reasons.source,),
            )


def gpu_partitioned(machine: Machine, _: DataLoaderConfig) -> Iterator[Verdict]:
    """Report a GPU that is partitioned into MIG instances."""
    for gpu in machine.gpus:
        if gpu.mig.known:
            yield Verdict(
                Severity.NOTE,
                "gpu-mig",
                f"GPU {gpu.index} is partitioned into MIG instances.",
                "A process gets one instance and its part of the memory, not the total shown here.",
                ("List the instances and their sizes:", "$ nvidia-smi -L"),
                (gpu.mig.source,),
            )
