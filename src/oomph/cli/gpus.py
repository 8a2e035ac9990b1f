"""`oomph gpus`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Optional

import typer

from ..errors import UsageError
from ._options import Json

if TYPE_CHECKING:
    from ..report import Report

_CLOUDS = ("aws", "gcp", "azure")


def gpus(
    name: Annotated[
        Optional[str],  # noqa: UP045  typer on Python 3.10 reads it at run time
        typer.Argument(
            help='One GPU or cloud machine, however spelled: 3060, "A100-80", p4d.24xlarge.', show_default=False
        ),
    ] = None,
    least: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--min", metavar="SIZE", help="Only those with at least this much memory per GPU.", show_default=False
        ),
    ] = None,
    cloud: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="|".join(_CLOUDS), help="List machines for rent there instead of GPUs.", show_default=False
        ),
    ] = None,
    json: Json = False,
) -> None:
    """List the GPUs and cloud machines that oomph knows, or show one of them.

    Memory is what a driver reported to programs where that is known, else the size it is sold with, marked by ~.
    """
    from ..report import emit  # noqa: PLC0415

    if name is not None:
        _refuse_beside_name({"--min": least is not None, "--cloud": cloud is not None})
        emit(_one(name), as_json=json)
    elif cloud is not None:
        emit(_machines(cloud, least), as_json=json)
    else:
        emit(_list(least), as_json=json)


def _refuse_beside_name(given: dict[str, bool]) -> None:
    if flags := " and ".join(flag for flag, is_given in given.items() if is_given):
        raise UsageError(f"a NAME shows one thing, and {flags} narrows a list", "leave one of them out")


def _one(name: str) -> Report:
    from ..machine import GpuSpec, find, machines_with  # noqa: PLC0415
    from ..report import CloudList, OneGpu  # noqa: PLC0415

    found = find(name)
    return OneGpu(found, machines_with(found)) if isinstance(found, GpuSpec) else CloudList((found,))


def _machines(cloud: str, least: str | None) -> Report:
    from ..machine import clouds, find_gpu  # noqa: PLC0415
    from ..report import CloudList  # noqa: PLC0415
    from ..units import parse_size  # noqa: PLC0415

    if cloud.lower() not in _CLOUDS:
        raise UsageError(f"{cloud!r} is no cloud that oomph knows", f"write one of {', '.join(_CLOUDS)}")
    smallest = parse_size(least or 0)
    offered = {one: find_gpu(one.gpu).usable * one.gpu_share for one in clouds() if one.provider == cloud.lower()}
    largest = max(offered, key=lambda one: offered[one])
    _refuse_too_large(smallest, offered[largest], largest.name)
    return CloudList(tuple(one for one, size in offered.items() if size >= smallest))


def _list(least: str | None) -> Report:
    from ..machine import gpus as all_gpus  # noqa: PLC0415
    from ..report import GpuList  # noqa: PLC0415
    from ..units import parse_size  # noqa: PLC0415

    smallest = parse_size(least or 0)
    largest = max(all_gpus(), key=lambda gpu: gpu.usable)
    _refuse_too_large(smallest, largest.usable, largest.name)
    return GpuList(tuple(gpu for gpu in all_gpus() if gpu.usable >= smallest))


def _refuse_too_large(wanted: int, most: float, name: str) -> None:
    from ..units import format_size  # noqa: PLC0415

    if wanted > most:
        raise UsageError(
            f"nothing on this list has {format_size(wanted)} of memory per GPU",
            f"the largest, {name}, has {format_size(most)}",
        )
