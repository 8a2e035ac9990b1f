"""All facts about a machine in one value."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .. import document
from ..errors import InvalidFile, MissingFile, shorten
from ._budget import Budget, memory_budget
from ._fact import Fact
from ._software import Software, read_software
from .gpu import Gpu, NvidiaDriver, NvmlData, parse_driver, query_nvml
from .host import (
    SHM,
    Cgroups,
    Cores,
    Environment,
    Memory,
    Pressure,
    ProcessLimits,
    Source,
    Volume,
    no_limits,
    no_pressure,
    no_volume,
    non_linux_environment,
    read_cgroups,
    read_cores,
    read_environment,
    read_limits,
    read_memory,
    read_non_linux_memory,
    read_non_linux_volume,
    read_pressure,
    read_volume,
)

_KIND, _VERSION = "machine", 1


@dataclass(frozen=True)
class Machine:
    """All facts that oomph reads from a machine."""

    environment: Environment
    driver: NvidiaDriver
    memory: Memory
    cgroups: Cgroups
    limits: ProcessLimits
    pressure: Pressure
    shm: Volume
    disk: Volume
    cores: Cores
    software: Software
    budget: Budget

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """The GPUs that the NVIDIA driver reports."""
        return self.driver.gpus


def read_machine(folder: Path = Path(), *, import_torch: bool = False) -> Machine:
    """Read the facts of this machine, which takes a fraction of a second.

    Args:
        folder: The folder for checkpoints; its disk is read.
        import_torch: Also import torch in a new process, which takes seconds.

    Raises:
        MissingFile: The folder doesn't exist.
    """
    path = _resolve(folder)
    software, nvml = read_software(import_torch=import_torch), query_nvml()
    if platform.system() == "Linux":
        return read_linux_machine(Source(), nvml, software, path)
    system = "windows" if platform.system() == "Windows" else "macos"
    return non_linux_machine(
        read_non_linux_memory(system),
        non_linux_environment(system, dict(os.environ)),
        nvml,
        software,
        read_non_linux_volume(path),
    )


def _resolve(folder: Path) -> str:
    name = repr(shorten(str(folder)))
    try:
        path = str(folder.resolve(strict=True)) if folder.is_dir() else None
    except OSError as error:
        # The folder was deleted while it is the current one, the name is too long, or a parent is not accessible.
        why = f"the folder {name} can't be opened ({error.strerror or error})"
    else:
        why = f"there is no folder {name}"
        if path is not None:
            return path
    raise MissingFile(why, "name the folder for checkpoints") from None


def read_linux_machine(source: Source, nvml: NvmlData, software: Software, folder: str) -> Machine:
    """Read a Linux machine, live or recorded."""
    environment, memory = read_environment(source), read_memory(source)
    cgroups, limits = read_cgroups(source), read_limits(source)
    return Machine(
        environment=environment,
        driver=parse_driver(nvml),
        memory=memory,
        cgroups=cgroups,
        limits=limits,
        pressure=read_pressure(source),
        shm=read_volume(source, SHM),
        disk=read_volume(source, folder),
        cores=read_cores(source, cgroups.cpu),
        software=software,
        budget=memory_budget(memory, cgroups.memory, limits, environment),
    )


def non_linux_machine(
    memory: Memory, environment: Environment, nvml: NvmlData, software: Software, disk: Volume
) -> Machine:
    """Build a macOS or Windows machine, which has no cgroups, PSI or /dev/shm."""
    system = environment.system
    reason = f"{system} doesn't have it"
    limits = no_limits(reason, system)
    cores: Fact[int] = Fact(os.cpu_count() or 1, "os.cpu_count()")
    return Machine(
        environment=environment,
        driver=parse_driver(nvml),
        memory=memory,
        cgroups=Cgroups((), ()),
        limits=limits,
        pressure=no_pressure(reason, system),
        shm=no_volume(SHM, reason, system),
        disk=disk,
        cores=Cores(cores, cores, cores.map(float)),
        software=software,
        budget=memory_budget(memory, (), limits, environment),
    )


def machine_document(machine: Machine) -> dict[str, object]:
    """Return the JSON document of a machine."""
    return document.write(_KIND, _VERSION, machine)


def load_machine(path: Path) -> Machine:
    """Load a machine that `oomph doctor --json` wrote.

    Raises:
        MissingFile: The file doesn't exist.
        InvalidFile: The file doesn't contain a machine.
    """
    data = document.load(path)
    if isinstance(data, dict) and data.get("oomph") == "diagnosis":
        data = data.get("machine")
    machine = document.read(_KIND, _VERSION, Machine, data)
    if negative := next(_negative_numbers(document.encode(machine), ""), None):
        raise InvalidFile(f"the machine file is damaged ({negative} is negative)", "run `oomph doctor --json` again")
    return machine


def _negative_numbers(data: object, path: str) -> Iterator[str]:
    """Yield the paths of negative numbers: no size, count or rate of a machine is negative."""
    if isinstance(data, dict):
        for name, value in data.items():
            yield from _negative_numbers(value, f"{path}.{name}".lstrip("."))
    elif isinstance(data, list):
        for index, value in enumerate(data):
            yield from _negative_numbers(value, f"{path}[{index}]")
    elif isinstance(data, (int, float)) and data < 0:
        yield path
