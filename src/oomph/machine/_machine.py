"""All facts of one machine in one value."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from .. import document
from ..errors import InvalidFile, MissingFile
from ._budget import Budget, find_budget
from ._cgroup import Cgroups, read_cgroups
from ._cores import Cores, read_cores
from ._fact import Fact, unknown
from ._gpu import Graphics, read_graphics
from ._limits import Limits, no_limits, read_limits
from ._memory import Memory, read_memory
from ._nvml import Answers, ask_driver
from ._pressure import Pressure, no_pressure, read_pressure
from ._software import Software, read_software
from ._source import Source
from ._surroundings import Environment, read_surroundings, surroundings_elsewhere
from ._volume import SHM, Volume, no_volume, read_volume

_KIND, _VERSION = "machine", 1
_QUOTED = 200  # characters of a wrong name that are shown


@dataclass(frozen=True)
class Machine:
    """Everything oomph knows about a computer."""

    surroundings: Environment
    graphics: Graphics
    memory: Memory
    cgroups: Cgroups
    limits: Limits
    pressure: Pressure
    shm: Volume
    disk: Volume
    cores: Cores
    software: Software
    budget: Budget


def read_machine(folder: Path = Path(), *, try_torch: bool = False) -> Machine:
    """Read the facts of this machine; takes a fraction of a second.

    Args:
        folder: where checkpoints will go, whose disk is looked at.
        try_torch: import torch in an interpreter of its own too, which takes seconds.

    Raises:
        MissingFile: there is no such folder.
    """
    place = _resolve(folder)
    software, answers = read_software(try_torch=try_torch), ask_driver()
    if platform.system() == "Linux":
        return machine_from(Source(), answers, software, place)
    return _elsewhere(answers, software, place)


def _resolve(folder: Path) -> str:
    name = str(folder)
    shown = repr(name if len(name) <= _QUOTED else f"{name[:_QUOTED]}…")
    try:
        found = str(folder.resolve(strict=True)) if folder.is_dir() else None
    except OSError as error:
        # A folder that was deleted under us, a name that is too long, a parent that may not be entered.
        why = f"the folder {shown} can't be opened ({error.strerror or error})"
    else:
        why = f"there is no folder {shown}"
        if found is not None:
            return found
    raise MissingFile(why, "name the folder that checkpoints are written to") from None


def machine_from(source: Source, answers: Answers, software: Software, folder: str) -> Machine:
    """Read a Linux machine from its files, live or recorded."""
    surroundings, memory = read_surroundings(source), read_memory(source)
    cgroups, limits = read_cgroups(source), read_limits(source)
    return Machine(
        surroundings=surroundings,
        graphics=read_graphics(answers),
        memory=memory,
        cgroups=cgroups,
        limits=limits,
        pressure=read_pressure(source),
        shm=read_volume(source, SHM),
        disk=read_volume(source, folder),
        cores=read_cores(source, cgroups.cpu),
        software=software,
        budget=find_budget(memory, cgroups.memory, limits, surroundings),
    )


def _elsewhere(answers: Answers, software: Software, folder: str) -> Machine:
    """Read a macOS or Windows machine."""
    if platform.system() == "Windows":
        from ._windows import ask_windows, page_file_used, read_windows_memory  # noqa: PLC0415

        system, memory = "windows", read_windows_memory(ask_windows(), page_file_used())
    else:
        from ._macos import ask_macos, read_macos_memory  # noqa: PLC0415

        system, memory = "macos", read_macos_memory(ask_macos())
    return compose(memory, surroundings_elsewhere(system, dict(os.environ)), answers, software, _disk(folder))


def compose(memory: Memory, surroundings: Environment, answers: Answers, software: Software, disk: Volume) -> Machine:
    """Put together a machine that has no Linux files."""
    why, source = f"{surroundings.system} has no such thing", surroundings.system
    limits = no_limits(why, source)
    count: Fact[int] = Fact(os.cpu_count() or 1, "os.cpu_count()")
    return Machine(
        surroundings=surroundings,
        graphics=read_graphics(answers),
        memory=memory,
        cgroups=Cgroups((), ()),
        limits=limits,
        pressure=no_pressure(why, source),
        shm=no_volume(SHM, why, source),
        disk=disk,
        cores=Cores(count, count, count.map(float)),
        software=software,
        budget=find_budget(memory, (), limits, surroundings),
    )


def _disk(folder: str) -> Volume:
    usage, source = psutil.disk_usage(folder), "psutil.disk_usage()"
    return Volume(
        path=folder,
        total=Fact(usage.total, source),
        free=Fact(usage.free, source),
        rotational=unknown("not read here", source),
        # Windows answers by an attribute that folders ignore.
        writable=unknown("only trying tells", source)
        if os.name == "nt"
        else Fact(os.access(folder, os.W_OK | os.X_OK), "access"),
    )


def machine_document(machine: Machine) -> dict[str, object]:
    """The JSON document of a machine."""
    return document.write(_KIND, _VERSION, machine)


def load_machine(path: Path) -> Machine:
    """Read a machine that was recorded with `oomph doctor --json`.

    Raises:
        MissingFile: there is no such file.
        InvalidFile: it holds no machine.
    """
    data = document.load(path)
    if isinstance(data, dict) and data.get("oomph") == "diagnosis":
        data = data.get("machine")
    machine = document.read(_KIND, _VERSION, Machine, data)
    if negative := next(_negatives(document.encode(machine), ""), None):
        raise InvalidFile(f"this machine document is damaged ({negative} is below zero)", "write it again")
    return machine


def _negatives(data: object, place: str) -> Iterator[str]:
    """Where numbers below zero are: no size, count or rate of a machine is."""
    if isinstance(data, dict):
        for name, value in data.items():
            yield from _negatives(value, f"{place}.{name}".lstrip("."))
    elif isinstance(data, list):
        for index, value in enumerate(data):
            yield from _negatives(value, f"{place}[{index}]")
    elif isinstance(data, (int, float)) and data < 0:
        yield place
