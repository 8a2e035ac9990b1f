"""What a process runs in: a plain machine, a container, WSL, a Slurm job, a notebook."""

from __future__ import annotations

import enum
import platform
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from ._fact import Fact, Unknown, unknown
from ._source import Source


class EnvironmentKind(enum.Enum):
    """A kind of surroundings that changes which limits apply and how they are lifted."""

    CONTAINER = "container"
    WSL = "wsl"
    SLURM = "slurm"
    NOTEBOOK = "notebook"


@dataclass(frozen=True)
class Detected:
    """A kind of surroundings and what gave it away."""

    place: EnvironmentKind
    source: str


@dataclass(frozen=True)
class Environment:
    """The operating system and what it runs in; no place at all is a plain machine.

    Attributes:
        system: "linux", "windows" or "macos".
        release: the kernel's or the system's version.
        places: every kind of surroundings found.
        slurm_memory: the memory that the Slurm job asked for on this node.
    """

    system: str
    release: Fact[str]
    places: tuple[Detected, ...]
    slurm_memory: Fact[int]

    def inside(self, place: EnvironmentKind) -> bool:
        """Whether this is one of the places found."""
        return any(found.place is place for found in self.places)


def read_surroundings(source: Source) -> Environment:
    """Look around on Linux."""
    path = "/proc/sys/kernel/osrelease"
    release = source.text(path)
    return Environment(
        system="linux",
        release=Fact(release if isinstance(release, Unknown) else release.strip(), path),
        places=tuple(_places(source, "" if isinstance(release, Unknown) else release)),
        slurm_memory=_slurm_memory(source),
    )


def surroundings_elsewhere(system: str, environ: dict[str, str]) -> Environment:
    """Look around on macOS and Windows, where only a notebook can be told."""
    return Environment(
        system=system,
        release=Fact(platform.release(), "platform.release()"),
        places=tuple(_notebook(Source(environ=environ))),
        slurm_memory=unknown("Slurm runs on Linux", "environment"),
    )


def _places(source: Source, release: str) -> Iterator[Detected]:
    if "microsoft" in release.lower():
        yield Detected(EnvironmentKind.WSL, "/proc/sys/kernel/osrelease")
    if origin := _container(source):
        yield Detected(EnvironmentKind.CONTAINER, origin)
    if "SLURM_JOB_ID" in source.environ:
        yield Detected(EnvironmentKind.SLURM, "environment SLURM_JOB_ID")
    yield from _notebook(source)


def _container(source: Source) -> str | None:
    for mark in ("/.dockerenv", "/run/.containerenv"):
        if source.has_file(mark):
            return mark
    for name in ("KUBERNETES_SERVICE_HOST", "APPTAINER_CONTAINER", "SINGULARITY_CONTAINER"):
        if name in source.environ:
            return f"environment {name}"
    groups = source.text("/proc/self/cgroup")
    if not isinstance(groups, Unknown) and re.search(r"/(docker|kubepods|lxc|containerd)[/.\-]", groups):
        return "/proc/self/cgroup"
    return None


def _notebook(source: Source) -> Iterator[Detected]:
    for name in ("COLAB_RELEASE_TAG", "KAGGLE_KERNEL_RUN_TYPE", "JPY_PARENT_PID"):
        if name in source.environ:
            yield Detected(EnvironmentKind.NOTEBOOK, f"environment {name}")
            return
    if source.live and "ipykernel" in sys.modules:
        yield Detected(EnvironmentKind.NOTEBOOK, "ipykernel is loaded")


def _slurm_memory(source: Source) -> Fact[int]:
    environ = source.environ
    # Slurm counts in MiB; 0 means all of the node.
    whole = environ.get("SLURM_MEM_PER_NODE", "")
    if whole.isdigit() and int(whole):
        return Fact(int(whole) * 1024**2, "environment SLURM_MEM_PER_NODE")
    each, cores = environ.get("SLURM_MEM_PER_CPU", ""), environ.get("SLURM_CPUS_ON_NODE", "")
    if each.isdigit() and cores.isdigit() and int(each):
        return Fact(int(each) * int(cores) * 1024**2, "environment SLURM_MEM_PER_CPU × SLURM_CPUS_ON_NODE")
    return unknown("not in a Slurm job that asked for memory", "environment SLURM_MEM_PER_NODE")
