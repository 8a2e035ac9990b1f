"""The environment of a process: a plain machine, a container, WSL, a Slurm job or a notebook."""

from __future__ import annotations

import enum
import platform
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from ...units import MIB
from .._fact import Fact, Unknown, unknown
from ._source import Source


class EnvironmentKind(enum.Enum):
    """A kind of environment; it decides which limits apply and how they are raised."""

    CONTAINER = "container"
    WSL = "wsl"
    SLURM = "slurm"
    NOTEBOOK = "notebook"


@dataclass(frozen=True)
class Detected:
    """A detected kind of environment and what revealed it."""

    kind: EnvironmentKind
    source: str


@dataclass(frozen=True)
class Environment:
    """The operating system and the environment; nothing detected means a plain machine.

    Attributes:
        system: "linux", "windows" or "macos".
        release: Version of the kernel or system.
        detected: All detected kinds of environment.
        slurm_memory: Memory that the Slurm job requested on this node.
    """

    system: str
    release: Fact[str]
    detected: tuple[Detected, ...]
    slurm_memory: Fact[int]

    def inside(self, kind: EnvironmentKind) -> bool:
        """Return True if this kind of environment was detected."""
        return any(detected.kind is kind for detected in self.detected)


def read_environment(source: Source) -> Environment:
    """Detect the environment of a Linux process."""
    path = "/proc/sys/kernel/osrelease"
    release = source.text(path)
    return Environment(
        system="linux",
        release=Fact(release if isinstance(release, Unknown) else release.strip(), path),
        detected=tuple(_detect(source, "" if isinstance(release, Unknown) else release)),
        slurm_memory=_slurm_memory(source),
    )


def non_linux_environment(system: str, environ: dict[str, str]) -> Environment:
    """Detect the environment of a macOS or Windows process, where only notebooks can be detected."""
    return Environment(
        system=system,
        release=Fact(platform.release(), "platform.release()"),
        detected=tuple(_detect_notebook(Source(environ=environ))),
        slurm_memory=unknown("Slurm runs on Linux", "environment"),
    )


def _detect(source: Source, release: str) -> Iterator[Detected]:
    if "microsoft" in release.lower():
        yield Detected(EnvironmentKind.WSL, "/proc/sys/kernel/osrelease")
    if origin := _container_evidence(source):
        yield Detected(EnvironmentKind.CONTAINER, origin)
    if "SLURM_JOB_ID" in source.environ:
        yield Detected(EnvironmentKind.SLURM, "environment SLURM_JOB_ID")
    yield from _detect_notebook(source)


def _container_evidence(source: Source) -> str | None:
    for marker in ("/.dockerenv", "/run/.containerenv"):
        if source.has_file(marker):
            return marker
    for name in ("KUBERNETES_SERVICE_HOST", "APPTAINER_CONTAINER", "SINGULARITY_CONTAINER"):
        if name in source.environ:
            return f"environment {name}"
    cgroups = source.text("/proc/self/cgroup")
    if not isinstance(cgroups, Unknown) and re.search(r"/(docker|kubepods|lxc|containerd)[/.\-]", cgroups):
        return "/proc/self/cgroup"
    return None


def _detect_notebook(source: Source) -> Iterator[Detected]:
    for name in ("COLAB_RELEASE_TAG", "KAGGLE_KERNEL_RUN_TYPE", "JPY_PARENT_PID"):
        if name in source.environ:
            yield Detected(EnvironmentKind.NOTEBOOK, f"environment {name}")
            return
    if source.live and "ipykernel" in sys.modules:
        yield Detected(EnvironmentKind.NOTEBOOK, "ipykernel is loaded")


def _slurm_memory(source: Source) -> Fact[int]:
    environ = source.environ
    # Slurm counts in MiB; 0 means the whole node.
    per_node = environ.get("SLURM_MEM_PER_NODE", "")
    if per_node.isdigit() and int(per_node):
        return Fact(int(per_node) * MIB, "environment SLURM_MEM_PER_NODE")
    per_cpu, cpus = environ.get("SLURM_MEM_PER_CPU", ""), environ.get("SLURM_CPUS_ON_NODE", "")
    if per_cpu.isdigit() and cpus.isdigit() and int(per_cpu):
        return Fact(int(per_cpu) * int(cpus) * MIB, "environment SLURM_MEM_PER_CPU × SLURM_CPUS_ON_NODE")
    return unknown("not a Slurm job that requested memory", "environment SLURM_MEM_PER_NODE")
