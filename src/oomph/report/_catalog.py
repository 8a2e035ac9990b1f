"""The reports of `oomph gpus`: a list of GPUs or cloud machines, or one of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from .. import document
from ..machine import CloudMachine, GpuSpec, find_gpu
from ..units import format_size
from ._table import table


@dataclass(frozen=True)
class GpuList:
    """Several GPUs."""

    gpus: tuple[GpuSpec, ...]

    def document(self) -> dict[str, Any]:
        """Everything the catalog knows of them."""
        return {"oomph": "gpus", "version": 1, "gpus": document.encode(self.gpus)}

    def render(self, *, plain: bool) -> RenderableType:
        """One row a GPU."""
        made = table("GPU", ">memory", ">bandwidth", ">fp32", ">fp16", ">capability", plain=plain)
        for gpu in self.gpus:
            made.add_row(
                gpu.name,
                memory(gpu),
                _bandwidth(gpu),
                _rate(gpu.rates.fp32),
                _rate(gpu.rates.fp16),
                gpu.compute_capability or "",
            )
        note = "~ is the size it is sold with; the others are what a driver reported. Rates are TFLOP/s, dense."
        return Group(made, Text(note, "dim"))


@dataclass(frozen=True)
class CloudList:
    """Several cloud machines."""

    machines: tuple[CloudMachine, ...]

    def document(self) -> dict[str, Any]:
        """Everything the catalog knows of them."""
        return {"oomph": "clouds", "version": 1, "machines": document.encode(self.machines)}

    def render(self, *, plain: bool) -> RenderableType:
        """One row a machine."""
        made = table("machine", "cloud", "GPUs", ">GPU memory", ">RAM", ">vCPUs", plain=plain)
        for machine in self.machines:
            each = int(find_gpu(machine.gpu).usable * machine.gpu_share)
            made.add_row(
                machine.name,
                machine.provider,
                gpu_words(machine),
                format_size(each),
                format_size(machine.ram),
                str(machine.vcpus),
            )
        return made


@dataclass(frozen=True)
class OneGpu:
    """One GPU with the cloud machines that have it."""

    gpu: GpuSpec
    machines: dict[str, list[CloudMachine]]

    def document(self) -> dict[str, Any]:
        """Everything the catalog knows of it."""
        return {
            "oomph": "gpu",
            "version": 1,
            "gpu": document.encode(self.gpu),
            "machines": document.encode(self.machines),
        }

    def render(self, *, plain: bool) -> RenderableType:
        """One row a fact."""
        made = table("", "", plain=plain)
        for name, value in self._rows():
            made.add_row(Text(name, "bold"), value)
        return Group(Text(self.gpu.name, "bold"), made)

    def _rows(self) -> Iterator[tuple[str, str]]:
        gpu = self.gpu
        reported = gpu.usable_source and f"as a driver reported it ({gpu.usable_source})"
        yield "memory", f"{format_size(gpu.usable)}, {reported or 'the size it is sold with'}"
        yield "bandwidth", _bandwidth(gpu)
        for name in ("fp32", "tf32", "bf16", "fp16"):
            rate = getattr(gpu.rates, name)
            yield name, "not in hardware or not known" if rate is None else f"{_rate(rate)} TFLOP/s, dense"
        if gpu.compute_capability:
            yield "compute capability", gpu.compute_capability
        yield "architecture", f"{gpu.architecture}, {gpu.year}"
        for provider, machines in self.machines.items():
            yield (
                f"on {provider}",
                ", ".join(f"{machine.name} ({gpu_words(machine)})" for machine in machines),
            )
        yield "source", gpu.source


def memory(gpu: GpuSpec) -> str:
    """The memory of a GPU in words, marked where it is only what the box says."""
    return ("" if gpu.usable_source else "~ ") + format_size(gpu.usable)


def gpu_words(machine: CloudMachine) -> str:
    """How many GPUs of which kind a machine has: "8 × A100 SXM4 40GB"."""
    count = f"{machine.gpu_share:.2g}" if machine.gpu_share < 1 else str(machine.gpu_count)
    return f"{count} × {machine.gpu}"


def _bandwidth(gpu: GpuSpec) -> str:
    return "" if gpu.bandwidth is None else f"{gpu.bandwidth / 1e9:g} GB/s"


def _rate(rate: float | None) -> str:
    return "" if rate is None else f"{rate / 1e12:g}"
