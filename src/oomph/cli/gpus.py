"""`oomph gpus`."""

from __future__ import annotations

import enum
from typing import Annotated, Optional

import typer

from ._options import Json


class Provider(str, enum.Enum):
    """The clouds of the catalogue."""

    AWS = "aws"
    GCP = "gcp"
    AZURE = "azure"


def gpus(
    name: Annotated[
        Optional[str],  # noqa: UP045  typer on Python 3.10 reads it at run time
        typer.Argument(help='One GPU or cloud machine, however spelled: 3060, "A100-80", p4d.24xlarge.'),
    ] = None,
    least: Annotated[
        str, typer.Option("--min", metavar="SIZE", help="Only those with at least this much memory per GPU.")
    ] = "0GiB",
    cloud: Annotated[
        Optional[Provider],  # noqa: UP045
        typer.Option(help="List machines for rent there instead of GPUs."),
    ] = None,
    json: Json = False,
) -> None:
    """List the GPUs and cloud machines that oomph knows, or show one of them.

    Memory is what a driver reported to programs where that is known, else the size it is sold with, marked by ~.
    """
    from .. import machine  # noqa: PLC0415
    from ..report import CloudList, GpuList, OneGpu, emit  # noqa: PLC0415
    from ..units import parse_size  # noqa: PLC0415

    smallest = parse_size(least)
    if name is not None:
        found = machine.find(name)
        if isinstance(found, machine.GpuSpec):
            emit(OneGpu(found, machine.machines_with(found)), as_json=json)
        else:
            emit(CloudList((found,)), as_json=json)
    elif cloud is not None:
        offered = (one for one in machine.clouds() if one.provider == cloud.value)
        fitting = (one for one in offered if machine.find_gpu(one.gpu).usable * one.gpu_share >= smallest)
        emit(CloudList(tuple(fitting)), as_json=json)
    else:
        emit(GpuList(tuple(one for one in machine.gpus() if one.usable >= smallest)), as_json=json)
