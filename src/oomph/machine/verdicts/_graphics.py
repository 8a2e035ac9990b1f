"""Verdicts on GPUs and their driver."""

from __future__ import annotations

from collections.abc import Iterator

from ...units import GIB, format_size
from .._fact import Unknown
from .._gpu import DRIVER_SHARE, DriverState, Gpu, GpuProcess
from .._machine import Machine
from .._surroundings import EnvironmentKind
from ._fixes import with_rights
from ._verdict import Load, Severity, Verdict

_MUCH_HELD = GIB // 2


def driver_failed(machine: Machine, load: Load) -> Iterator[Verdict]:
    """A driver that is there but doesn't answer."""
    del load
    if machine.graphics.state is DriverState.FAILED:
        yield Verdict(
            Severity.FAILS,
            "driver-failed",
            f"The NVIDIA driver is installed but doesn't work: {machine.graphics.why}.",
            "No GPU can be used. After a driver update this is cured by a restart.",
            ("$ nvidia-smi", *_restart(machine)),
            ("NVML",),
        )
    for gpu in machine.graphics.gpus:
        if isinstance(gpu.name.value, Unknown) and isinstance(gpu.total.value, Unknown):
            yield Verdict(
                Severity.FAILS,
                "gpu-lost",
                f"GPU {gpu.index} doesn't answer the driver: {gpu.name.value.unknown}.",
                "It can't be used, and programs that ask for all GPUs may hang or fail.",
                ("Restart the machine; if that doesn't help, the card, its power or its slot is at fault.",),
                (gpu.name.source,),
            )


def _restart(machine: Machine) -> tuple[str, ...]:
    if machine.surroundings.system == "windows" or machine.surroundings.inside(EnvironmentKind.WSL):
        return ("Restart Windows.",)
    return with_rights(machine, "$ sudo reboot")


def held_by_others(machine: Machine, load: Load) -> Iterator[Verdict]:
    """GPU memory that other processes hold, by name."""
    del load
    for gpu in machine.graphics.gpus:
        if isinstance(gpu.processes.value, Unknown):
            yield from _held_by_the_invisible(machine, gpu)
        else:
            yield from _held(machine, gpu, [one for one in gpu.processes.value if _counts(one)])


def _counts(process: GpuProcess) -> bool:
    """Whether it is somebody else's and more than the little that a desktop draws with."""
    return not process.ours and not (process.graphics and (process.used.known or 0) < _MUCH_HELD)


def _held(machine: Machine, gpu: Gpu, others: list[GpuProcess]) -> Iterator[Verdict]:
    sizes = [one.used.known for one in others]
    # What the driver keeps for itself is held by nobody; it is counted only where processes don't tell their share.
    held = gpu.used.known if None in sizes else sum(size for size in sizes if size is not None)
    if not others or held is None or held < _MUCH_HELD:
        return
    who = ", ".join(map(_holder, others))
    yield Verdict(
        Severity.RISKY,
        "gpu-held",
        f"{format_size(held)} of {_memory_of(gpu)} is held by {who}.",
        "Only the rest is left for training.",
        _end(machine, [one.pid for one in others]),
        (gpu.used.source, gpu.processes.source),
    )


def _held_by_the_invisible(machine: Machine, gpu: Gpu) -> Iterator[Verdict]:
    used = gpu.used.known
    if used is None or used < DRIVER_SHARE:
        return
    if machine.surroundings.inside(EnvironmentKind.WSL):
        fix = ("They may run on the Windows side: look in its Task Manager, Details, or there:", "$ nvidia-smi")
    elif machine.surroundings.inside(EnvironmentKind.CONTAINER):
        fix = ("Look from outside of the container:", "$ nvidia-smi")
    else:
        fix = ("Look for processes of other users and containers:", "$ nvidia-smi")
    yield Verdict(
        Severity.RISKY,
        "gpu-held",
        f"{format_size(used)} of {_memory_of(gpu)} is held by processes that can't be seen from here.",
        "Only the rest is left for training.",
        fix,
        (gpu.used.source, gpu.processes.source),
    )


def _memory_of(gpu: Gpu) -> str:
    total = "memory" if gpu.total.known is None else format_size(gpu.total.known)
    return f"the {total} of GPU {gpu.index} ({gpu.name.known or 'of unknown name'})"


def _end(machine: Machine, pids: list[int]) -> tuple[str, ...]:
    if machine.surroundings.system == "windows":
        return (f"$ taskkill {' '.join(f'/PID {pid}' for pid in pids)}",)
    if machine.surroundings.inside(EnvironmentKind.WSL):
        return ("End them where they run, here or on the Windows side.",)
    return (f"$ kill {' '.join(map(str, pids))}",)


def _holder(process: GpuProcess) -> str:
    name = process.name.known or "a process without a visible name"
    size = f", {format_size(process.used.known)}" if process.used.known is not None else ""
    return f"{name} (pid {process.pid}{size})"


def slowed_down(machine: Machine, load: Load) -> Iterator[Verdict]:
    """A GPU whose clocks are held down."""
    del load
    for gpu in machine.graphics.gpus:
        if gpu.slowdowns.known:
            yield Verdict(
                Severity.NOTE,
                "gpu-slow",
                f"GPU {gpu.index} runs below its clocks: {', '.join(gpu.slowdowns.known)}.",
                "Steps take longer than predicted; memory is not concerned.",
                ("$ nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER",),
                (gpu.slowdowns.source,),
            )


def divided(machine: Machine, load: Load) -> Iterator[Verdict]:
    """A GPU that is divided into instances, of which a process gets one."""
    del load
    for gpu in machine.graphics.gpus:
        if gpu.mig.known:
            yield Verdict(
                Severity.NOTE,
                "gpu-divided",
                f"GPU {gpu.index} is divided into instances (MIG).",
                "A process gets one instance with its share of the memory, not all that is shown here.",
                ("See the instances and their sizes:", "$ nvidia-smi -L"),
                (gpu.mig.source,),
            )
