"""The catalog: GPUs and cloud machines by name, from the data files in `catalog/`."""

from __future__ import annotations

import csv
import functools
import importlib.resources
from dataclasses import dataclass

from ..units import GIB


@dataclass(frozen=True)
class Rates:
    """Peak rates in operations per second, dense; None where the hardware can't do it at all."""

    fp32: float | None
    tf32: float | None
    bf16: float | None
    fp16: float | None


@dataclass(frozen=True)
class GpuSpec:
    """A GPU model.

    Attributes:
        name: the product's name, with its memory size where there are several.
        vendor: "nvidia", "amd" or "apple".
        aliases: other names for it, what the driver says among them.
        architecture: "Ampere".
        year: when it came out.
        nominal: bytes of memory as it is sold.
        usable: bytes of memory that programs see, as a driver reported them; the nominal ones where nobody told us.
        usable_source: who reported it; empty where `usable` is only the nominal size.
        compute_capability: "8.6"; None for other makers.
        bandwidth: bytes per second of memory traffic.
        rates: operations per second.
        source: where the figures come from.
    """

    name: str
    vendor: str
    aliases: tuple[str, ...]
    architecture: str
    year: int
    nominal: int
    usable: int
    usable_source: str
    compute_capability: str | None
    bandwidth: float | None
    rates: Rates
    source: str


@dataclass(frozen=True)
class CloudMachine:
    """A machine for rent.

    Attributes:
        name: the provider's name for it.
        provider: "aws", "gcp" or "azure".
        gpu: name of the GPU in the catalog.
        gpu_count: how many of them.
        gpu_share: which part of one, for sliced GPUs; 1 otherwise.
        ram: bytes of RAM.
        vcpus: virtual cores.
        source: where the figures come from.
    """

    name: str
    provider: str
    gpu: str
    gpu_count: int
    gpu_share: float
    ram: int
    vcpus: int
    source: str


@functools.cache
def gpus() -> tuple[GpuSpec, ...]:
    """Every GPU of the catalog."""
    return tuple(_gpu(row) for row in _rows("gpus.csv"))


@functools.cache
def clouds() -> tuple[CloudMachine, ...]:
    """Every cloud machine of the catalog."""
    return tuple(_cloud(row) for row in _rows("clouds.csv"))


def _rows(file: str) -> list[dict[str, str]]:
    text = importlib.resources.files(__package__).joinpath("catalog", file).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def _gpu(row: dict[str, str]) -> GpuSpec:
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
        compute_capability=row["compute_capability"] or None,
        bandwidth=_number(row["bandwidth_gb_s"], 1e9),
        rates=Rates(*(_number(row[f"{kind}_tflops"], 1e12) for kind in ("fp32", "tf32", "bf16", "fp16"))),
        source=row["source"],
    )


def _cloud(row: dict[str, str]) -> CloudMachine:
    return CloudMachine(
        name=row["name"],
        provider=row["provider"],
        gpu=row["gpu"],
        gpu_count=int(row["gpu_count"]),
        gpu_share=float(row["gpu_share"]),
        ram=int(float(row["ram_gib"]) * GIB),
        vcpus=int(row["vcpus"]),
        source=row["source"],
    )


def _number(text: str, scale: float) -> float | None:
    return float(text) * scale if text else None
