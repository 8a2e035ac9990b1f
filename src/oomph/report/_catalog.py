"""Reports of `oomph gpus`: a list of GPUs, a list of cloud machines, or the details of one GPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from .. import document
from ..display import HtmlRepr
from ..machine import NOMINAL, CloudMachine, GpuSpec, find_gpu
from ..units import format_size
from ._table import table

_NOTE = f"{NOMINAL} marks a nominal size; other sizes were reported by a driver. Rates are TFLOP/s, dense."


@dataclass(frozen=True)
class GpuList(HtmlRepr):
    """A list of GPUs."""

    gpus: tuple[GpuSpec, ...]

    def document(self) -> dict[str, Any]:
        """Return the catalog entries as a JSON document."""
        return {"oomph": "gpus", "version": 1, "gpus": document.encode(self.gpus)}

    def render(self, *, plain: bool) -> RenderableType:
        """Render a table with one row per GPU."""
        rows = table("GPU", ">memory", ">bandwidth", ">fp32", ">fp16", ">capability", plain=plain)
        for gpu in self.gpus:
            rows.add_row(
                gpu.name,
                _format_memory(gpu, gpu.usable),
                _format_bandwidth(gpu),
                _format_rate(gpu.rates.fp32),
                _format_rate(gpu.rates.fp16),
                gpu.compute_capability or "",
            )
        return Group(rows, Text(_NOTE, "dim"))


@dataclass(frozen=True)
class CloudMachineList(HtmlRepr):
    """A list of cloud machines."""

    machines: tuple[CloudMachine, ...]

    def document(self) -> dict[str, Any]:
        """Return the catalog entries as a JSON document."""
        return {"oomph": "cloud_machines", "version": 1, "machines": document.encode(self.machines)}

    def render(self, *, plain: bool) -> RenderableType:
        """Render a table with one row per machine."""
        rows = table("machine", "cloud", "GPUs", ">GPU memory", ">RAM", ">vCPUs", plain=plain)
        for machine in self.machines:
            gpu = find_gpu(machine.gpu)
            rows.add_row(
                machine.name,
                machine.provider,
                _format_gpus(machine),
                _format_memory(gpu, int(gpu.usable * machine.gpu_fraction)),
                format_size(machine.ram),
                str(machine.vcpus),
            )
        return rows


@dataclass(frozen=True)
class GpuDetails(HtmlRepr):
    """The details of one GPU, with the cloud machines that have it."""

    gpu: GpuSpec
    machines: dict[str, list[CloudMachine]]

    def document(self) -> dict[str, Any]:
        """Return the catalog entry and its machines as a JSON document."""
        return {
            "oomph": "gpu",
            "version": 1,
            "gpu": document.encode(self.gpu),
            "machines": document.encode(self.machines),
        }

    def render(self, *, plain: bool) -> RenderableType:
        """Render a table with one row per fact."""
        rows = table("", "", plain=plain)
        for name, value in self._rows():
            rows.add_row(Text(name, "bold"), value)
        return Group(Text(self.gpu.name, "bold"), rows)

    def _rows(self) -> Iterator[tuple[str, str]]:
        gpu = self.gpu
        origin = "nominal" if gpu.usable_is_nominal else f"reported by a driver ({gpu.usable_source})"
        yield "memory", f"{_format_memory(gpu, gpu.usable)}, {origin}"
        yield "bandwidth", _format_bandwidth(gpu)
        for name in ("fp32", "tf32", "bf16", "fp16"):
            rate = getattr(gpu.rates, name)
            yield name, "not supported or not known" if rate is None else f"{_format_rate(rate)} TFLOP/s, dense"
        if gpu.compute_capability:
            yield "compute capability", gpu.compute_capability
        yield "architecture", f"{gpu.architecture}, {gpu.year}"
        for provider, machines in self.machines.items():
            yield (
                f"on {provider}",
                ", ".join(f"{machine.name} ({_format_gpus(machine)})" for machine in machines),
            )
        yield "source", gpu.source


def _format_memory(gpu: GpuSpec, size: int) -> str:
    return (f"{NOMINAL} " if gpu.usable_is_nominal else "") + format_size(size)


def _format_gpus(machine: CloudMachine) -> str:
    count = f"{machine.gpu_fraction:.2g}" if machine.gpu_fraction < 1 else str(machine.gpu_count)
    return f"{count} × {machine.gpu}"


def _format_bandwidth(gpu: GpuSpec) -> str:
    return "" if gpu.bandwidth is None else f"{gpu.bandwidth / 1e9:g} GB/s"


def _format_rate(rate: float | None) -> str:
    return "" if rate is None else f"{rate / 1e12:g}"
