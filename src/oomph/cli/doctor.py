"""`oomph doctor`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Optional

import typer

from ..errors import UsageError, shorten
from ._options import Json


def doctor(
    workers: Annotated[
        Optional[str],  # noqa: UP045  typer on Python 3.10 reads it at run time
        typer.Option(metavar="NUMBER", help="Loader workers to check for.", show_default="8, or one per core"),
    ] = None,
    batch: Annotated[str, typer.Option(metavar="SIZE", help="Bytes of one batch as the loader returns it.")] = "75MiB",
    checkpoints: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="FOLDER", help="Folder for checkpoints.", show_default="current folder"),
    ] = None,
    machine: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            metavar="FILE",
            help="Check another machine, from a file written by doctor --json there.",
            show_default=False,
        ),
    ] = None,
    torch: Annotated[
        bool, typer.Option("--torch", help="Also import torch and torchvision, which takes seconds.")
    ] = False,
    json: Json = False,
) -> None:
    """Check this machine for problems that make training fail or slow, and show how to fix them.

    Reads GPUs and the processes on them, RAM, swap or page file, commit limit, cgroups, process limits, /dev/shm, disk,
    cores and the installed torch. Changes nothing. Needs no GPU and, without --torch, no torch.
    """
    from ..machine import (  # noqa: PLC0415
        DataLoaderConfig,
        default_workers,
        diagnose_machine,
        load_machine,
        read_machine,
    )
    from ..report import DoctorReport, emit  # noqa: PLC0415
    from ..units import parse_size  # noqa: PLC0415

    batch_bytes, requested = parse_size(batch), None if workers is None else _parse_workers(workers)
    if machine is None:
        facts = read_machine(checkpoints or Path(), import_torch=torch)
    else:
        _reject_with_machine({"--checkpoints": checkpoints is not None, "--torch": torch})
        facts = load_machine(machine)
    loader = DataLoaderConfig(default_workers(facts) if requested is None else requested, batch_bytes)
    emit(DoctorReport(facts, diagnose_machine(facts, loader)), as_json=json)


def _parse_workers(text: str) -> int:
    # Parsed here because typer's message for an invalid number differs between versions.
    if not re.fullmatch(r"[0-9]{1,6}", text):
        raise UsageError(f"{shorten(text)!r} is not a number of workers", "use a whole number, such as 0 or 8")
    return int(text)


def _reject_with_machine(given: dict[str, bool]) -> None:
    """Reject options that read this machine when another one is checked."""
    if flags := " and ".join(flag for flag, is_given in given.items() if is_given):
        raise UsageError(f"--machine can't be combined with {flags}, which reads this machine", "leave out one of them")
