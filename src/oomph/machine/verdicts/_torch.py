"""Verdicts on torch and torchvision, and on whether this torch can use the GPU that is there."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .._fact import Fact, Unknown
from .._gpu import DriverState, Gpu
from .._machine import Machine
from .._surroundings import EnvironmentKind
from ._verdict import Load, Severity, Verdict

# CUDA 13 dropped everything before Turing.
_OLDEST_CAPABILITY = {13: (7, 5)}
# And builds before CUDA 12.8 know nothing of Blackwell.
_BLACKWELL, _BLACKWELL_CUDA = (10, 0), (12, 8)


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
            ("$ pip uninstall torch", *_install_cuda(machine, "torch")),
            (machine.software.torch_cuda.source,),
        )
        return
    faults = [*_driver_too_old(machine, build), *_gpu_unserved(machine, build)]
    yield from faults or _cuda_unavailable(machine)


def _install_cuda(machine: Machine, packages: str) -> tuple[str, ...]:
    # What pip finds by itself has CUDA on Linux and has none on Windows.
    if machine.surroundings.system == "windows":
        return ("Choose Windows, Pip and a CUDA version at pytorch.org, Get Started, and run the line it shows.",)
    return (f"$ pip install {packages}",)


def gpu_not_passed(machine: Machine, load: Load) -> Iterator[Verdict]:
    """A container with a torch for CUDA that was started without the GPU."""
    del load
    build = machine.software.torch_cuda.known
    inside = machine.surroundings.inside(EnvironmentKind.CONTAINER)
    if not inside or build in {None, "none"} or machine.graphics.state is not DriverState.NO_DRIVER:
        return
    yield Verdict(
        Severity.RISKY,
        "gpu-not-passed",
        f"torch is built for CUDA {build}, but no NVIDIA driver can be seen in this container.",
        "Training runs on the CPU, many times slower, even if the host has a GPU.",
        (
            "If the host has one, start the container with it:",
            "$ docker run --gpus all …",
            "on Kubernetes, ask for the resource nvidia.com/gpu.",
        ),
        (machine.software.torch_cuda.source, "NVML"),
    )


def _cuda_unavailable(machine: Machine) -> Iterator[Verdict]:
    """A torch that was tried and doesn't find the GPU, with nothing else to explain it."""
    trial = machine.software.trial
    if trial is None or trial.cuda_available.known is True or trial.torch_error.known:
        return
    value = trial.cuda_available.value
    said = f": {value.unknown}" if isinstance(value, Unknown) else ""
    yield Verdict(
        Severity.FAILS,
        "cuda-unavailable",
        f"The driver sees a GPU, but torch {machine.software.torch.known} finds no CUDA{said}.",
        "Training would run on the CPU, many times slower.",
        (
            "See why; an empty CUDA_VISIBLE_DEVICES is one reason:",
            '$ python -c "import torch; torch.cuda.init()"',
        ),
        (trial.cuda_available.source, "NVML"),
    )


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
    for gpu in machine.graphics.gpus:
        capability = _version(gpu.compute_capability.known or "")
        fault = _fault(machine, capability, build) if len(capability) > 1 else None
        if fault is not None:
            yield _unserved(machine, gpu, build, *fault)


def _unserved(machine: Machine, gpu: Gpu, build: str, name: str, lack: str) -> Verdict:
    return Verdict(
        Severity.FAILS,
        name,
        f"GPU {gpu.index} has compute capability {gpu.compute_capability.known}; torch built for CUDA {build} {lack}.",
        '"no kernel image is available for execution on the device" at the first step.',
        (
            "Install a torch built for CUDA 12."
            if name == "gpu-old"
            else "Install a torch built for CUDA 12.8 or newer.",
        ),
        (gpu.compute_capability.source, machine.software.torch_cuda.source),
    )


def _fault(machine: Machine, capability: tuple[int, ...], build: str) -> tuple[str, str] | None:
    """The name of what is wrong, and what the build lacks."""
    trial, cuda = machine.software.trial, _version(build)
    if trial and trial.architectures.known:
        built = [one for text in trial.architectures.known if (one := _architecture(text))]
        if not built or any(_serves(kind, number, capability) for kind, number in built):
            return None
        newer = capability > max(number for _, number in built)
        return "gpu-new" if newer else "gpu-old", f"has kernels for {', '.join(trial.architectures.known)} only"
    oldest = _OLDEST_CAPABILITY.get(cuda[0]) if cuda else None
    if oldest is not None and capability < oldest:
        return "gpu-old", f"needs {oldest[0]}.{oldest[1]} or more"
    if cuda and capability >= _BLACKWELL and cuda < _BLACKWELL_CUDA:
        return "gpu-new", "has no kernels for it"
    return None


def _architecture(text: str) -> tuple[str, tuple[int, ...]] | None:
    match = re.fullmatch(r"(sm|compute)_(\d{1,3})(\d)[a-z]?", text)
    return (match[1], (int(match[2]), int(match[3]))) if match else None


def _serves(kind: str, number: tuple[int, ...], capability: tuple[int, ...]) -> bool:
    """Compiled kernels run on later GPUs of their own generation; portable ones on all that came later."""
    return number <= capability and (kind == "compute" or number[0] == capability[0])


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
                *_install_cuda(machine, "--force-reinstall torch torchvision"),
            ),
            (software.torch.source, software.torchvision.source),
        )


def _vision_fault(machine: Machine, torch: str, vision: str) -> str | None:
    software = machine.software
    if software.trial and software.trial.torchvision_error.known:
        return software.trial.torchvision_error.known
    wanted = software.torchvision_wants.known
    tried = software.trial is not None and software.trial.torchvision_error.known == ""
    if not tried and wanted is not None and wanted.split("+")[0] != torch.split("+", maxsplit=1)[0]:
        return f"it was built for torch {wanted}"
    build = software.torch_cuda.known
    if "+cu" in vision and build == "none":
        return "it is a CUDA build beside a torch without CUDA (operator torchvision::nms does not exist)"
    if "+cpu" in vision and build not in {None, "none"}:
        return "it is a CPU build beside a torch with CUDA (torchvision::nms can't run on the GPU)"
    return None
