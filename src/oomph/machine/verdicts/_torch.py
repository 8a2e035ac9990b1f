"""Verdicts on torch and torchvision, and on whether this torch can use the GPUs of the machine."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .._fact import Fact, Unknown
from .._machine import Machine
from ..gpu import DriverState, Gpu
from ..host import EnvironmentKind
from ._verdict import DataLoaderConfig, Severity, Verdict

# CUDA 13 dropped all architectures before Turing.
_MIN_CAPABILITY = {13: (7, 5)}
# Builds before CUDA 12.8 have no kernels for Blackwell.
_BLACKWELL, _BLACKWELL_CUDA = (10, 0), (12, 8)


def torch_missing(machine: Machine, _: DataLoaderConfig) -> Iterator[Verdict]:
    """Report a torch that is missing, unreadable or doesn't import."""
    software = machine.software
    value = software.torch.value
    if _is_missing(software.torch):
        yield Verdict(
            Severity.FAILS,
            "torch-missing",
            "torch is not installed in this environment.",
            "Training needs torch.",
            ("$ pip install torch",),
            (software.torch.source,),
        )
        return
    if isinstance(value, Unknown):
        yield Verdict(
            Severity.RISKY,
            "torch-unreadable",
            f"torch is installed, but its version can't be read: {value.unknown}.",
            "The installation may be damaged. oomph could not check whether it supports the GPU.",
            ("Check whether it works:", "$ oomph doctor --torch"),
            (software.torch.source,),
        )
    version, check = software.torch.known, software.import_check
    if check and check.torch_error.known:
        yield Verdict(
            Severity.FAILS,
            "torch-broken",
            f"torch{f' {version}' if version else ''} doesn't import: {check.torch_error.known}.",
            "Training needs torch.",
            ("$ pip install --force-reinstall torch",),
            (check.torch_error.source,),
        )


def _is_missing(package: Fact[str]) -> bool:
    """Return True if a package is not installed, rather than installed and unreadable."""
    return isinstance(package.value, Unknown) and package.value.unknown.endswith("not installed")


def torch_unfit(machine: Machine, _: DataLoaderConfig) -> Iterator[Verdict]:
    """Report a torch build that can't use the GPUs of the machine."""
    build, version = machine.software.torch_cuda.known, machine.software.torch.known
    if build is None or version is None or not machine.gpus:
        return
    if build == "none":
        yield Verdict(
            Severity.FAILS,
            "torch-without-cuda",
            f"This machine has a GPU, but torch {version} is a CPU build.",
            'Training would run on the CPU, many times slower, or stop with "Torch not compiled with CUDA enabled".',
            ("$ pip uninstall torch", *_install_cuda(machine, "torch")),
            (machine.software.torch_cuda.source,),
        )
        return
    problems = [*_driver_too_old(machine, build), *_unsupported_gpus(machine, build)]
    yield from problems or _cuda_unavailable(machine)


def _install_cuda(machine: Machine, packages: str) -> tuple[str, ...]:
    # PyPI's wheels have CUDA on Linux and none on Windows.
    if machine.environment.system == "windows":
        return ("Choose Windows, Pip and a CUDA version at pytorch.org, Get Started, and run the command it shows.",)
    return (f"$ pip install {packages}",)


def gpu_not_in_container(machine: Machine, _: DataLoaderConfig) -> Iterator[Verdict]:
    """Report a container with a CUDA build of torch that was started without a GPU."""
    build = machine.software.torch_cuda.known
    in_container = machine.environment.inside(EnvironmentKind.CONTAINER)
    if not in_container or build in {None, "none"} or machine.driver.state is not DriverState.NO_DRIVER:
        return
    yield Verdict(
        Severity.RISKY,
        "gpu-not-in-container",
        f"torch is built for CUDA {build}, but no NVIDIA driver is visible in this container.",
        "Training runs on the CPU, many times slower, even if the host has a GPU.",
        (
            "If the host has a GPU, start the container with it:",
            "$ docker run --gpus all …",
            "On Kubernetes, request the resource nvidia.com/gpu.",
        ),
        (machine.software.torch_cuda.source, "NVML"),
    )


def _cuda_unavailable(machine: Machine) -> Iterator[Verdict]:
    """Report an imported torch that finds no GPU, if nothing else explains it."""
    check = machine.software.import_check
    if check is None or check.cuda_available.known is True or check.torch_error.known:
        return
    value = check.cuda_available.value
    error = f": {value.unknown}" if isinstance(value, Unknown) else ""
    yield Verdict(
        Severity.FAILS,
        "cuda-unavailable",
        f"The driver reports a GPU, but torch {machine.software.torch.known} finds no CUDA{error}.",
        "Training would run on the CPU, many times slower.",
        (
            "Show the error; an empty CUDA_VISIBLE_DEVICES is one possible reason:",
            '$ python -c "import torch; torch.cuda.init()"',
        ),
        (check.cuda_available.source, "NVML"),
    )


def _driver_too_old(machine: Machine, build: str) -> Iterator[Verdict]:
    cuda = machine.driver.cuda.known or ""
    # A driver supports all CUDA versions up to its own major version.
    if cuda and _version(cuda) and _version(cuda)[:1] < _version(build)[:1]:
        yield Verdict(
            Severity.FAILS,
            "driver-old",
            f"torch {machine.software.torch.known} was built for CUDA {build}; the driver "
            f"({machine.driver.version.known}) supports CUDA {cuda} at most.",
            'torch will not find the GPU ("The NVIDIA driver on your system is too old").',
            (f"Install a newer driver, or a torch built for CUDA {cuda.split('.')[0]}.",),
            (machine.driver.cuda.source, machine.software.torch_cuda.source),
        )


def _unsupported_gpus(machine: Machine, build: str) -> Iterator[Verdict]:
    """Report GPUs that are too old or too new for the build."""
    for gpu in machine.gpus:
        capability = _version(gpu.compute_capability.known or "")
        problem = _kernel_problem(machine, capability, build) if len(capability) > 1 else None
        if problem is not None:
            yield _unsupported_gpu(machine, gpu, build, *problem)


def _unsupported_gpu(machine: Machine, gpu: Gpu, build: str, name: str, problem: str) -> Verdict:
    version = "CUDA 12" if name == "gpu-old" else "CUDA 12.8 or newer"
    return Verdict(
        Severity.FAILS,
        name,
        f"GPU {gpu.index} has compute capability {gpu.compute_capability.known}; torch built for CUDA {build} "
        f"{problem}.",
        'The first step fails with "no kernel image is available for execution on the device".',
        (f"Install a torch built for {version}.",),
        (gpu.compute_capability.source, machine.software.torch_cuda.source),
    )


def _kernel_problem(machine: Machine, capability: tuple[int, ...], build: str) -> tuple[str, str] | None:
    """Return the verdict's name and what the build lacks for a GPU, or None if it supports the GPU."""
    check, cuda = machine.software.import_check, _version(build)
    if check and check.architectures.known:
        kernels = [kernel for text in check.architectures.known if (kernel := _parse_architecture(text))]
        if not kernels or any(_supports(kind, number, capability) for kind, number in kernels):
            return None
        is_newer = capability > max(number for _, number in kernels)
        return "gpu-new" if is_newer else "gpu-old", f"has kernels for {', '.join(check.architectures.known)} only"
    minimum = _MIN_CAPABILITY.get(cuda[0]) if cuda else None
    if minimum is not None and capability < minimum:
        return "gpu-old", f"needs {minimum[0]}.{minimum[1]} or more"
    if cuda and capability >= _BLACKWELL and cuda < _BLACKWELL_CUDA:
        return "gpu-new", "has no kernels for it"
    return None


def _parse_architecture(text: str) -> tuple[str, tuple[int, ...]] | None:
    match = re.fullmatch(r"(sm|compute)_(\d{1,3})(\d)[a-z]?", text)
    return (match[1], (int(match[2]), int(match[3]))) if match else None


def _supports(kind: str, number: tuple[int, ...], capability: tuple[int, ...]) -> bool:
    """Return True if a kernel runs on a GPU: binary code within its major version, PTX on all later GPUs."""
    return number <= capability and (kind == "compute" or number[0] == capability[0])


def _version(text: str) -> tuple[int, ...]:
    """Parse the leading numbers of a version; empty if there are none."""
    match = re.match(r"\d{1,9}(\.\d{1,9})*", text)
    return tuple(map(int, match[0].split("."))) if match else ()


def torchvision_broken(machine: Machine, _: DataLoaderConfig) -> Iterator[Verdict]:
    """Report a torchvision that doesn't match torch, or doesn't import."""
    software = machine.software
    torch, torchvision = software.torch.known, software.torchvision.known
    if torch is None or torchvision is None:
        return
    problem = _torchvision_problem(machine, torch, torchvision)
    if problem:
        yield Verdict(
            Severity.RISKY,
            "torchvision-broken",
            f"torchvision {torchvision} doesn't work with torch {torch}: {problem}.",
            "Lightning, transformers' vision models, timm and Ultralytics fail while it is installed, even if they "
            "don't need it.",
            (
                "$ pip uninstall torchvision",
                "Or reinstall both:",
                *_install_cuda(machine, "--force-reinstall torch torchvision"),
            ),
            (software.torch.source, software.torchvision.source),
        )


def _torchvision_problem(machine: Machine, torch: str, torchvision: str) -> str | None:
    software = machine.software
    error = software.import_check.torchvision_error.known if software.import_check else None
    if error:
        return error
    required = software.torchvision_requires.known
    imports = error == ""
    if not imports and required is not None and required.split("+")[0] != torch.split("+", maxsplit=1)[0]:
        return f"it was built for torch {required}"
    build = software.torch_cuda.known
    if "+cu" in torchvision and build == "none":
        return "it is a CUDA build and torch is a CPU build (operator torchvision::nms does not exist)"
    if "+cpu" in torchvision and build not in {None, "none"}:
        return "it is a CPU build and torch is a CUDA build (torchvision::nms can't run on the GPU)"
    return None
