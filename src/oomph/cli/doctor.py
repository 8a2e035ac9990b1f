"""`oomph doctor`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from ._options import Json


def doctor(
    workers: Annotated[
        Optional[int],  # noqa: UP045  typer on Python 3.10 reads it at run time
        typer.Option(min=0, help="Loader workers to judge for.  [default: 8, or one a core]", show_default=False),
    ] = None,
    batch: Annotated[
        str, typer.Option(metavar="SIZE", help="Bytes of one batch, as a loader hands it over.")
    ] = "75MiB",
    checkpoints: Annotated[Path, typer.Option(metavar="FOLDER", help="Where checkpoints will be written.")] = Path(),
    machine: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="FILE", help="Judge another machine, from what its doctor --json wrote."),
    ] = None,
    torch: Annotated[
        bool, typer.Option("--torch", help="Import torch and torchvision for real, which takes seconds.")
    ] = False,
    json: Json = False,
) -> None:
    """Tell what this machine has, what stands in the way of training on it, and how to mend that.

    Looks at GPUs and who uses them, RAM, swap or page file, commit limit, control groups, process limits, /dev/shm,
    disk, cores and the installed torch. Changes nothing. Needs no GPU and, without --torch, no torch.
    """
    from ..machine import Load, default_workers, judge, load_machine, read_machine  # noqa: PLC0415
    from ..report import DoctorReport, emit  # noqa: PLC0415
    from ..units import parse_size  # noqa: PLC0415

    size = parse_size(batch)
    facts = load_machine(machine) if machine else read_machine(checkpoints, try_torch=torch)
    load = Load(workers=default_workers(facts) if workers is None else workers, batch=size)
    emit(DoctorReport(facts, judge(facts, load)), as_json=json)
