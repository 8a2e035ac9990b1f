"""`oomph gpus`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Optional

import typer

from ..errors import UsageError, shorten
from ._options import Json

if TYPE_CHECKING:
    from ..report import Report

_CLOUDS = ("aws", "gcp", "azure")


def gpus(
    name: Annotated[
        Optional[str],  # noqa: UP045  typer on Python 3.10 reads it at run time
        typer.Argument(
            help='A GPU or cloud machine in any spelling: 3060, "A100-80", p4d.24xlarge.', show_default=False
        ),
    ] = None,
    min_memory: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--min", metavar="SIZE", help="List only entries with at least this memory per GPU.", show_default=False
        ),
    ] = None,
    cloud: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="|".join(_CLOUDS), help="List the machines of a cloud instead of GPUs.", show_default=False
        ),
    ] = None,
    json: Json = False,
) -> None:
    """List the GPUs and cloud machines that oomph knows, or show one of them.

    Memory is the size that a driver reports to programs. If no report is known, it is the nominal size, marked with ~.
    """
    from ..report import emit  # noqa: PLC0415

    if name is not None:
        _reject_filters({"--min": min_memory is not None, "--cloud": cloud is not None})
        emit(_details(name), as_json=json)
    elif cloud is not None:
        emit(_list_machines(cloud, min_memory), as_json=json)
    else:
        emit(_list_gpus(min_memory), as_json=json)


def _reject_filters(given: dict[str, bool]) -> None:
    if flags := " and ".join(flag for flag, is_given in given.items() if is_given):
        raise UsageError(f"NAME can't be combined with {flags}", "leave out one of them")


def _details(name: str) -> Report:
    from ..machine import GpuSpec, cloud_machines_with, find_in_catalog  # noqa: PLC0415
    from ..report import CloudMachineList, GpuDetails  # noqa: PLC0415

    entry = find_in_catalog(name)
    if isinstance(entry, GpuSpec):
        return GpuDetails(entry, cloud_machines_with(entry))
    return CloudMachineList((entry,))


def _list_machines(cloud: str, min_memory: str | None) -> Report:
    from ..machine import cloud_machines, find_gpu  # noqa: PLC0415
    from ..report import CloudMachineList  # noqa: PLC0415
    from ..units import parse_size  # noqa: PLC0415

    if cloud.lower() not in _CLOUDS:
        raise UsageError(f"{shorten(cloud)!r} is not a cloud that oomph knows", f"use {', '.join(_CLOUDS)}")
    min_bytes = parse_size(min_memory or 0)
    sizes = {
        machine: find_gpu(machine.gpu).usable * machine.gpu_fraction
        for machine in cloud_machines()
        if machine.provider == cloud.lower()
    }
    largest = max(sizes, key=lambda machine: sizes[machine])
    _reject_too_large(min_bytes, sizes[largest], largest.name)
    return CloudMachineList(tuple(machine for machine, size in sizes.items() if size >= min_bytes))


def _list_gpus(min_memory: str | None) -> Report:
    from ..machine import gpu_specs  # noqa: PLC0415
    from ..report import GpuList  # noqa: PLC0415
    from ..units import parse_size  # noqa: PLC0415

    min_bytes = parse_size(min_memory or 0)
    largest = max(gpu_specs(), key=lambda gpu: gpu.usable)
    _reject_too_large(min_bytes, largest.usable, largest.name)
    return GpuList(tuple(gpu for gpu in gpu_specs() if gpu.usable >= min_bytes))


def _reject_too_large(min_bytes: int, max_bytes: float, name: str) -> None:
    from ..units import format_size  # noqa: PLC0415

    if min_bytes > max_bytes:
        raise UsageError(
            f"no entry has {format_size(min_bytes)} of memory per GPU",
            f"use at most {format_size(max_bytes)}, the memory of {name}",
        )
