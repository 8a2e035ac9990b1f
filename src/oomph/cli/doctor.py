"""`oomph doctor`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Optional

import typer

from ..errors import UsageError
from ._options import Json


def doctor(
    workers: Annotated[
        Optional[str],  # noqa: UP045  typer on Python 3.10 reads it at run time
        typer.Option(metavar="NUMBER", help="Loader workers to judge for.", show_default="8, or one a core"),
    ] = None,
    batch: Annotated[
        str, typer.Option(metavar="SIZE", help="Bytes of one batch, as a loader hands it over.")
    ] = "75MiB",
    checkpoints: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="FOLDER", help="Where checkpoints will be written.", show_default="this folder"),
    ] = None,
    machine: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            metavar="FILE", help="Judge another machine, from what its doctor --json wrote.", show_default=False
        ),
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

    size, asked = parse_size(batch), None if workers is None else _workers(workers)
    if machine is None:
        facts = read_machine(checkpoints or Path(), try_torch=torch)
    else:
        _refuse_beside_machine({"--checkpoints": checkpoints is not None, "--torch": torch})
        facts = load_machine(machine)
    load = Load(workers=default_workers(facts) if asked is None else asked, batch=size)
    emit(DoctorReport(facts, judge(facts, load)), as_json=json)


def _workers(text: str) -> int:
    # Read here, because the words for a number that is none differ from one version of typer to the next.
    if not re.fullmatch(r"[0-9]{1,6}", text):
        raise UsageError(f"{text[:40]!r} is not a number of workers", "write a whole number, such as 0 or 8")
    return int(text)


def _refuse_beside_machine(given: dict[str, bool]) -> None:
    """What looks at this machine can't be asked of another one."""
    if flags := " and ".join(flag for flag, is_given in given.items() if is_given):
        raise UsageError(f"--machine judges another machine, and {flags} looks at this one", "leave one of them out")
