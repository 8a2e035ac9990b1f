"""Report of `oomph doctor`: the facts of the machine, then the verdicts, most severe first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from .. import document
from ..display import HtmlRepr
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

_STYLES = {Severity.FAILS: "bold red", Severity.RISKY: "bold yellow", Severity.NOTE: "bold cyan"}
_ENVIRONMENTS = {
    EnvironmentKind.CONTAINER: "in a container",
    EnvironmentKind.WSL: "under WSL",
    EnvironmentKind.SLURM: "in a Slurm job",
    EnvironmentKind.NOTEBOOK: "in a notebook",
}

FactRow = tuple[str, str, str]  # name, value, source


@dataclass(frozen=True)
class DoctorReport(HtmlRepr):
    """A machine and its verdicts."""

    machine: Machine
    verdicts: tuple[Verdict, ...]

    def document(self) -> dict[str, Any]:
        """Return the verdicts and the machine's document as a JSON document."""
        return {
            "oomph": "diagnosis",
            "version": 1,
            "healthy": not self.verdicts,
            "verdicts": document.encode(self.verdicts),
            "machine": machine_document(self.machine),
        }

    def render(self, *, plain: bool) -> RenderableType:
        """Render a table of facts, then the verdicts."""
        facts = table("", "", "read from", plain=plain)
        for name, value, source in _fact_rows(self.machine):
            facts.add_row(Text(printable(name), "bold"), Text(printable(value)), Text(printable(source), "dim"))
        return Group(facts, Text(), *_render_verdicts(self.verdicts))


def _render_verdicts(verdicts: tuple[Verdict, ...]) -> Iterator[RenderableType]:
    if not verdicts:
        yield Text("Healthy: oomph found no problem for training on this machine.", "bold green")
        return
    for verdict in verdicts:
        severity, summary = f"{verdict.severity.value}: ", printable(verdict.summary)
        yield Text.assemble((severity, _STYLES[verdict.severity]), (summary, "bold"))
        yield from (body_line(printable(line)) for line in (verdict.why, *verdict.fix))
        yield Text()


def _fact_rows(machine: Machine) -> Iterator[FactRow]:
    yield _system_row(machine)
    yield from _gpu_rows(machine)
    yield from _memory_rows(machine)
    yield from _volume_rows(machine)
    yield _cores_row(machine)
    software = machine.software
    yield "torch", _format_torch(machine), software.torch.source
    if not isinstance(software.torchvision.value, Unknown):
        yield "torchvision", software.torchvision.value, software.torchvision.source


def _system_row(machine: Machine) -> FactRow:
    environment = machine.environment
    kinds = ", ".join(_ENVIRONMENTS[detected.kind] for detected in environment.detected) or "a plain machine"
    sources = dict.fromkeys(detected.source for detected in environment.detected)
    return "system", f"{environment.system} {_format_fact(environment.release)}, {kinds}", ", ".join(sources)


def _gpu_rows(machine: Machine) -> Iterator[FactRow]:
    driver = machine.driver
    if driver.state is not DriverState.READY:
        yield "GPU", f"none: {driver.reason}", "NVML"
        return
    for gpu in driver.gpus:
        yield f"GPU {gpu.index}", _format_gpu(gpu), gpu.total.source
    yield "driver", f"{_format_fact(driver.version)}, CUDA {_format_fact(driver.cuda)}", driver.version.source


def _format_gpu(gpu: Gpu) -> str:
    parts = [
        _format_fact(gpu.name),
        f"{_format_bytes(gpu.free)} free of {_format_bytes(gpu.total)}",
        f"compute capability {_format_fact(gpu.compute_capability)}",
        "ECC on" if gpu.ecc.known else "",
        "MIG on" if gpu.mig.known else "",
    ]
    return ", ".join(filter(None, parts))


def _memory_rows(machine: Machine) -> Iterator[FactRow]:
    memory, tightest = machine.memory, machine.budget.tightest
    available = f"{_format_bytes(memory.ram_available)} available of {_format_bytes(memory.ram_total)}"
    yield "RAM", available, memory.ram_total.source
    if tightest is None:
        yield "budget", "unknown: no memory limit could be read", ""
    else:
        text = f"{format_size(tightest.available)}, set by the {tightest.name} ({format_size(tightest.limit)})"
        yield "budget", text, tightest.source
    word = "page file" if machine.environment.system == "windows" else "swap"
    yield word, _format_swap(machine), memory.swap_total.source
    enforced = {True: "enforced", False: "not enforced", None: "enforcement unknown"}[memory.commit_enforced.known]
    if memory.commit_limit.known is not None:
        text = f"{_format_bytes(memory.commit_charge)} committed of {_format_bytes(memory.commit_limit)}, {enforced}"
        yield "commit", text, memory.commit_limit.source


def _format_swap(machine: Machine) -> str:
    memory = machine.memory
    if memory.swap_total.known == 0:
        return "none"
    rate = (memory.swap_in_rate.known or 0) + (memory.swap_out_rate.known or 0)
    paging = f", paging {format_rate(rate)}" if rate else ""
    return f"{_format_bytes(memory.swap_used)} used of {_format_bytes(memory.swap_total)}{paging}"


def _volume_rows(machine: Machine) -> Iterator[FactRow]:
    for name, volume in ((machine.shm.path, machine.shm), ("disk", machine.disk)):
        if isinstance(volume.total.value, Unknown):
            continue
        kind = {True: ", HDD", False: ", SSD", None: ""}[volume.rotational.known]
        path = f" at {volume.path}" if name == "disk" else ""
        size = f"{_format_bytes(volume.free)} free of {_format_bytes(volume.total)}"
        yield name, f"{size}{path}{kind}", volume.free.source


def _cores_row(machine: Machine) -> FactRow:
    cores = machine.cores
    usable = "unknown" if cores.usable.known is None else f"{cores.usable.known:g}"
    return "cores", f"{usable} usable of {_format_fact(cores.online)}", cores.usable.source


def _format_torch(machine: Machine) -> str:
    software = machine.software
    if isinstance(software.torch.value, Unknown):
        reason = software.torch.value.unknown
        return "not installed" if reason.endswith("not installed") else f"installed, version unknown ({reason})"
    cuda = software.torch_cuda.known
    return f"{software.torch.known}, {'CPU build' if cuda in {None, 'none'} else f'built for CUDA {cuda}'}"


def _format_fact(fact: Fact[Any]) -> str:
    value = fact.value
    if isinstance(value, Unknown):
        return f"unknown ({value.unknown})"
    return value.value if isinstance(value, NoLimit) else str(value)


def _format_bytes(fact: Fact[int]) -> str:
    return _format_fact(fact) if isinstance(fact.value, Unknown) else format_size(fact.value)
