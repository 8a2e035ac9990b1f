"""The report of `oomph doctor`: what the machine has, then the verdicts, worst first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from .. import document
from ..machine import (
    DriverState,
    EnvironmentKind,
    Fact,
    Gpu,
    Machine,
    NoLimit,
    Severity,
    Unknown,
    Verdict,
    machine_document,
)
from ..units import format_rate, format_size
from ._table import table
from ._text import body_line, printable

_STYLE = {Severity.FAILS: "bold red", Severity.RISKY: "bold yellow", Severity.NOTE: "bold cyan"}
_PLACE = {
    EnvironmentKind.CONTAINER: "in a container",
    EnvironmentKind.WSL: "under WSL",
    EnvironmentKind.SLURM: "in a Slurm job",
    EnvironmentKind.NOTEBOOK: "in a notebook",
}

Row = tuple[str, str, str]


@dataclass(frozen=True)
class DoctorReport:
    """A machine and what is wrong with it."""

    machine: Machine
    verdicts: tuple[Verdict, ...]

    def document(self) -> dict[str, Any]:
        """The machine's own document and the verdicts."""
        return {
            "oomph": "diagnosis",
            "version": 1,
            "healthy": not self.verdicts,
            "verdicts": document.encode(self.verdicts),
            "machine": machine_document(self.machine),
        }

    def render(self, *, plain: bool) -> RenderableType:
        """A table of facts, then the verdicts in words."""
        facts = table("", "", "read from", plain=plain)
        for name, value, source in rows(self.machine):
            facts.add_row(Text(printable(name), "bold"), Text(printable(value)), Text(printable(source), "dim"))
        return Group(facts, Text(), *_verdicts(self.verdicts))


def _verdicts(verdicts: tuple[Verdict, ...]) -> Iterator[RenderableType]:
    if not verdicts:
        yield Text("Healthy: nothing on this machine stands in the way of training.", "bold green")
        return
    for verdict in verdicts:
        head, what = f"{verdict.severity.value}: ", printable(verdict.what)
        yield Text.assemble((head, _STYLE[verdict.severity]), (what, "bold"))
        yield from (body_line(printable(line)) for line in (verdict.why, *verdict.fix))
        yield Text()


def rows(machine: Machine) -> Iterator[Row]:
    """What the machine has, one row a thing: its name, its value in words, where it was read."""
    yield _system(machine)
    yield from _graphics(machine)
    yield from _memory(machine)
    yield from _places(machine)
    software = machine.software
    yield "torch", _torch(machine), software.torch.source
    if not isinstance(software.torchvision.value, Unknown):
        yield "torchvision", software.torchvision.value, software.torchvision.source


def _system(machine: Machine) -> Row:
    around = machine.surroundings
    places = ", ".join(_PLACE[found.place] for found in around.places) or "a plain machine"
    release = words(around.release)
    return (
        "system",
        f"{around.system} {release}, {places}",
        _sources(*(found.source for found in around.places)),
    )


def _graphics(machine: Machine) -> Iterator[Row]:
    graphics = machine.graphics
    if graphics.state is not DriverState.READY:
        yield "GPU", f"none: {graphics.why}", "NVML"
        return
    for gpu in graphics.gpus:
        yield f"GPU {gpu.index}", _gpu(gpu), gpu.total.source
    yield "driver", f"{words(graphics.driver)}, CUDA {words(graphics.cuda)}", graphics.driver.source


def _gpu(gpu: Gpu) -> str:
    parts = [
        words(gpu.name),
        f"{size(gpu.free)} free of {size(gpu.total)}",
        f"compute capability {words(gpu.compute_capability)}",
        "ECC on" if gpu.ecc.known else "",
        "MIG on" if gpu.mig.known else "",
    ]
    return ", ".join(filter(None, parts))


def _memory(machine: Machine) -> Iterator[Row]:
    memory, tightest = machine.memory, machine.budget.tightest
    yield (
        "RAM",
        f"{size(memory.ram_available)} available of {size(memory.ram_total)}",
        memory.ram_total.source,
    )
    if tightest is None:
        yield "budget", "unknown: nothing that limits memory could be read", ""
    else:
        text = f"{format_size(tightest.room)}, set by the {tightest.name} ({format_size(tightest.limit)})"
        yield "budget", text, tightest.source
    word = "page file" if machine.surroundings.system == "windows" else "swap"
    yield word, _swap(machine), memory.swap_total.source
    enforced = {True: "enforced", False: "not enforced", None: "unknown whether enforced"}[memory.commit_enforced.known]
    if memory.commit_limit.known is not None:
        text = f"{size(memory.commit_charge)} promised of {size(memory.commit_limit)}, {enforced}"
        yield "commit", text, memory.commit_limit.source


def _swap(machine: Machine) -> str:
    memory = machine.memory
    if memory.swap_total.known == 0:
        return "none"
    rate = (memory.swap_in_rate.known or 0) + (memory.swap_out_rate.known or 0)
    moving = f", moving {format_rate(rate)}" if rate else ""
    return f"{size(memory.swap_used)} used of {size(memory.swap_total)}{moving}"


def _places(machine: Machine) -> Iterator[Row]:
    for name, volume in ((machine.shm.path, machine.shm), ("disk", machine.disk)):
        if isinstance(volume.total.value, Unknown):
            continue
        spinning = {True: ", a spinning disk", False: ", a solid-state disk", None: ""}[volume.rotational.known]
        where = f" at {volume.path}" if name == "disk" else ""
        yield name, f"{size(volume.free)} free of {size(volume.total)}{where}{spinning}", volume.free.source
    cores = machine.cores
    usable = "unknown" if cores.usable.known is None else f"{cores.usable.known:g}"
    yield "cores", f"{usable} usable of {words(cores.online)}", cores.usable.source


def _torch(machine: Machine) -> str:
    software = machine.software
    if isinstance(software.torch.value, Unknown):
        missing = software.torch.value.unknown
        return "not installed" if missing.endswith("not installed") else f"installed, version unknown ({missing})"
    built = software.torch_cuda.known
    return f"{software.torch.known}, {'built without CUDA' if built in {None, 'none'} else f'built for CUDA {built}'}"


def words(fact: Fact[Any]) -> str:
    """A fact in words."""
    value = fact.value
    if isinstance(value, Unknown):
        return f"unknown ({value.unknown})"
    return value.value if isinstance(value, NoLimit) else str(value)


def size(fact: Fact[int]) -> str:
    """A fact in bytes in words."""
    return words(fact) if isinstance(fact.value, Unknown) else format_size(fact.value)


def _sources(*sources: str) -> str:
    return ", ".join(dict.fromkeys(sources))
