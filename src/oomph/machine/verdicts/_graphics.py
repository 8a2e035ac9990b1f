"""Verdicts on GPUs, their driver and the torch that should use them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...units import GIB, format_size
from .._fact import Fact, Unknown
from .._gpu import DriverState, Gpu, GpuProcess
from .._machine import Machine
from ._verdict import Load, Severity, Verdict

_MUCH_HELD = GIB // 2
# CUDA 13 dropped everything before Turing.
_OLDEST_CAPABILITY = {13: (7, 5)}
# And builds before CUDA 12.8 know nothing of Blackwell.
_BLACKWELL, _BLACKWELL_CUDA = (10, 0), (12, 8)


def driver_failed(machine: Machine, load: Load) -> Iterator[Verdict]:
    """A driver that is there but doesn't answer."""
    del load
    if machine.graphics.state is DriverState.FAILED:
        yield Verdict(
            Severity.FAILS,
            "driver-failed",
            f"The NVIDIA driver is installed but doesn't work: {machine.graphics.why}.",
            "No GPU can be used. After a driver update this is cured by a restart.",
            ("$ nvidia-smi", "$ sudo reboot"),
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


def held_by_others(machine: Machine, load: Load) -> Iterator[Verdict]:
    """GPU memory that other processes hold, by name."""
    del load
    for gpu in machine.graphics.gpus:
        yield from _held(gpu)


def _held(gpu: Gpu) -> Iterator[Verdict]:
    used, total = gpu.used.known, gpu.total.known
    if used is None or total is None or used < _MUCH_HELD:
        return
    others = None if gpu.processes.known is None else [one for one in gpu.processes.known if not one.ours]
    if others == []:
        return
    name = gpu.name.known or f"GPU {gpu.index}"
    who = "processes that can't be seen from here" if others is None else ", ".join(map(_holder, others))
    yield Verdict(
        Severity.RISKY,
        "gpu-held",
        f"{format_size(used)} of the {format_size(total)} of GPU {gpu.index} ({name}) is held by {who}.",
        "Only the rest is left for training.",
        (f"$ kill {' '.join(str(one.pid) for one in others)}",)
        if others
        else ("Look from outside of the container:", "$ nvidia-smi"),
        (gpu.used.source, gpu.processes.source),
    )


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


def torch_missing(machine: Machine, load: Load) -> Iterator[Verdict]:
    """No torch, or one that doesn't import."""
    del load
    software = machine.software
    absent = software.torch.value
    if _is_missing(software.torch):
        yield Verdict(
            Severity.FAILS,
            "torch-missing",
            "torch is not installed in this environment.",
            "Nothing can be trained.",
            ("$ pip install torch",),
            (software.torch.source,),
        )
    elif isinstance(absent, Unknown):
        yield Verdict(
            Severity.RISKY,
            "torch-unreadable",
            f"torch is installed, but its version can't be read: {absent.unknown}.",
            "The install may be damaged, and whether it fits the GPU was not judged.",
            ("See whether it works:", "$ oomph doctor --torch"),
            (software.torch.source,),
        )
    version = software.torch.known
    if software.trial and software.trial.torch_error.known and not _is_missing(software.torch):
        yield Verdict(
            Severity.FAILS,
            "torch-broken",
            f"torch{f' {version}' if version else ''} doesn't import: {software.trial.torch_error.known}.",
            "Nothing can be trained.",
            ("$ pip install --force-reinstall torch",),
            (software.trial.torch_error.source,),
        )


def _is_missing(package: Fact[str]) -> bool:
    """Whether a package is not installed at all, rather than installed and unreadable."""
    return isinstance(package.value, Unknown) and package.value.unknown.endswith("not installed")


def torch_unfit(machine: Machine, load: Load) -> Iterator[Verdict]:
    """A torch build that can't use the GPU that is there."""
    del load
    build, version = machine.software.torch_cuda.known, machine.software.torch.known
    if build is None or version is None or not machine.graphics.gpus:
        return
    if build == "none":
        yield Verdict(
            Severity.FAILS,
            "torch-without-cuda",
            f"This machine has a GPU, but torch {version} is a build without CUDA.",
            'Training would run on the CPU, many times slower, or stop with "Torch not compiled with CUDA enabled".',
            ("$ pip uninstall torch && pip install torch",),
            (machine.software.torch_cuda.source,),
        )
        return
    yield from _driver_too_old(machine, build)
    yield from _gpu_unserved(machine, build)


def _driver_too_old(machine: Machine, build: str) -> Iterator[Verdict]:
    driver = machine.graphics.cuda.known or ""
    # A driver runs every CUDA version of its own major number or below.
    if driver and _version(driver) and _version(driver)[:1] < _version(build)[:1]:
        yield Verdict(
            Severity.FAILS,
            "driver-old",
            f"torch {machine.software.torch.known} was built for CUDA {build}; the driver "
            f"({machine.graphics.driver.known}) supports CUDA {driver} at most.",
            'torch will not see the GPU ("The NVIDIA driver on your system is too old").',
            (f"Install a newer driver, or a torch built for CUDA {driver.split('.')[0]}.",),
            (machine.graphics.cuda.source, machine.software.torch_cuda.source),
        )


def _gpu_unserved(machine: Machine, build: str) -> Iterator[Verdict]:
    """GPUs that the build has no kernels for, being too old or too new for it."""
    cuda = _version(build)
    for gpu in machine.graphics.gpus:
        capability = _version(gpu.compute_capability.known or "")
        if not cuda or not capability:
            continue
        oldest = _OLDEST_CAPABILITY.get(cuda[0])
        if oldest is not None and capability < oldest:
            name, needs = "gpu-old", f"needs {oldest[0]}.{oldest[1]} or more"
            fix = "Install a torch built for CUDA 12."
        elif capability >= _BLACKWELL and cuda < _BLACKWELL_CUDA:
            name, needs = "gpu-new", "has no kernels for it"
            fix = "Install a torch built for CUDA 12.8 or newer."
        else:
            continue
        yield Verdict(
            Severity.FAILS,
            name,
            f"GPU {gpu.index} has compute capability {gpu.compute_capability.known}; torch built for CUDA {build} "
            f"{needs}.",
            '"no kernel image is available for execution on the device" at the first step.',
            (fix,),
            (gpu.compute_capability.source, machine.software.torch_cuda.source),
        )


def _version(text: str) -> tuple[int, ...]:
    """The numbers a version starts with; none where it is something else."""
    match = re.match(r"\d{1,9}(\.\d{1,9})*", text)
    return tuple(map(int, match[0].split("."))) if match else ()


def torchvision_broken(machine: Machine, load: Load) -> Iterator[Verdict]:
    """A torchvision that doesn't belong to this torch, or fails to import."""
    del load
    software = machine.software
    torch, vision = software.torch.known, software.torchvision.known
    if torch is None or vision is None:
        return
    fault = _vision_fault(machine, torch, vision)
    if fault:
        yield Verdict(
            Severity.RISKY,
            "torchvision-broken",
            f"torchvision {vision} doesn't work with torch {torch}: {fault}.",
            "Lightning, transformers' vision models, timm and Ultralytics fail while it is installed, even where they "
            "would do without it.",
            (
                "$ pip uninstall torchvision",
                "or install the pair again:",
                "$ pip install --force-reinstall torch torchvision",
            ),
            (software.torch.source, software.torchvision.source),
        )


def _vision_fault(machine: Machine, torch: str, vision: str) -> str | None:
    software = machine.software
    if software.trial:
        return software.trial.torchvision_error.known or None
    wanted = software.torchvision_wants.known
    if wanted is not None and wanted.split("+")[0] != torch.split("+", maxsplit=1)[0]:
        return f"it was built for torch {wanted}"
    cuda_vision = "+cu" in vision
    if cuda_vision and software.torch_cuda.known == "none":
        return "it is a CUDA build beside a torch without CUDA (operator torchvision::nms does not exist)"
    return None
