"""GPUs and cloud machines, read from `gpus.csv` and `cloud_machines.csv`."""

from __future__ import annotations

import csv
import functools
import importlib.resources
from dataclasses import dataclass

from ...units import GIB

NOMINAL = "~"  # the `usable_source` of a GPU for which no report of its usable memory is known


@dataclass(frozen=True)
class Rates:
    """Peak rates in operations per second, dense; None if the hardware lacks the precision or the rate is unknown."""

    fp32: float | None
    tf32: float | None
    bf16: float | None
    fp16: float | None


@dataclass(frozen=True)
class GpuSpec:
    """A GPU model.

    Attributes:
        name: Product name, with the memory size if there are several.
        vendor: "nvidia", "amd" or "apple".
        aliases: Other names, including the driver's.
        architecture: Such as "Ampere".
        year: Year of release.
        nominal: Bytes of memory that the product is sold with.
        usable: Bytes of memory that programs can use, as a driver reported them; else `nominal`.
        usable_source: Where `usable` was reported, or "~" if it is the nominal size.
        usable_is_nominal: True if no report is known and `usable` is the nominal size.
        compute_capability: Such as "8.6"; None for other vendors than NVIDIA.
        bandwidth: Memory bandwidth, in bytes per second.
        rates: Peak rates, in operations per second.
        source: Where the other numbers are from.
    """

    name: str
    vendor: str
    aliases: tuple[str, ...]
    architecture: str
    year: int
    nominal: int
    usable: int
    usable_source: str
    usable_is_nominal: bool
    compute_capability: str | None
    bandwidth: float | None
    rates: Rates
    source: str


@dataclass(frozen=True)
class CloudMachine:
    """A machine for rent.

    Attributes:
        name: The provider's name of it.
        provider: "aws", "gcp" or "azure".
        gpu: Name of its GPU in the catalog.
        gpu_count: Number of GPUs.
        gpu_fraction: Fraction of a GPU that a sliced machine has; else 1.
        ram: Bytes of RAM.
        vcpus: Virtual cores.
        source: Where the numbers are from.
    """

    name: str
    provider: str
    gpu: str
    gpu_count: int
    gpu_fraction: float
    ram: int
    vcpus: int
    source: str


@functools.cache
def gpu_specs() -> tuple[GpuSpec, ...]:
    """Return all GPUs of the catalog."""
    return tuple(_parse_gpu(row) for row in _read_rows("gpus.csv"))


@functools.cache
def cloud_machines() -> tuple[CloudMachine, ...]:
    """Return all cloud machines of the catalog."""
    return tuple(_parse_cloud_machine(row) for row in _read_rows("cloud_machines.csv"))


def _read_rows(file: str) -> list[dict[str, str]]:
    text = importlib.resources.files(__package__).joinpath(file).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def _parse_gpu(row: dict[str, str]) -> GpuSpec:
    nominal = float(row["memory_gib"])
    return GpuSpec(
        name=row["name"],
        vendor=row["vendor"],
        aliases=tuple(filter(None, row["aliases"].split("|"))),
        architecture=row["architecture"],
        year=int(row["year"]),
        nominal=int(nominal * GIB),
        usable=int(float(row["usable_gib"] or nominal) * GIB),
        usable_source=row["usable_source"],
        usable_is_nominal=row["usable_source"] == NOMINAL,
        compute_capability=row["compute_capability"] or None,
        bandwidth=_parse_rate(row["bandwidth_gb_s"], 1e9),
        rates=Rates(*(_parse_rate(row[f"{precision}_tflops"], 1e12) for precision in ("fp32", "tf32", "bf16", "fp16"))),
        source=row["source"],
    )


def _parse_cloud_machine(row: dict[str, str]) -> CloudMachine:
    return CloudMachine(
        name=row["name"],
        provider=row["provider"],
        gpu=row["gpu"],
        gpu_count=int(row["gpu_count"]),
        gpu_fraction=float(row["gpu_fraction"]),
        ram=int(float(row["ram_gib"]) * GIB),
        vcpus=int(row["vcpus"]),
        source=row["source"],
    )


def _parse_rate(text: str, scale: float) -> float | None:
    return float(text) * scale if text else None
