"""`oomph shrink prune`."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from .._options import Device, Gpu, Json, Side
from .._runs import create_run_dir
from ._training import (
    RUNS,
    Batch,
    Budget,
    Epochs,
    Name,
    Resume,
    SettingsFile,
    TrainedWeights,
    TrainingData,
    TrainingFlags,
    find_shrink_run,
    missing_flag,
    resume_hint,
)

if TYPE_CHECKING:
    from ...shrink import PruneRequest

_OPS = 0.5


def prune(
    weights: TrainedWeights = None,
    data: TrainingData = None,
    ops: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(metavar="FRACTION", help="Fraction of the operations that remains.", show_default=str(_OPS)),
    ] = None,
    memory: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="SIZE", help="Instead of --ops: prune until it trains in this memory.", show_default=False
        ),
    ] = None,
    gpu: Gpu = None,
    steps: Annotated[int, typer.Option(help="Prune in this many steps, each followed by --epochs.")] = 1,
    epochs: Epochs = 50,
    img: Side = 640,
    batch: Batch = 16,
    device: Device = None,
    budget: Budget = None,
    settings: SettingsFile = None,
    name: Name = "prune",
    resume: Resume = None,
    json: Json = False,
) -> None:
    """Remove the least important channels of a detector, and fine-tune it under the guard.

    Goes on after an interruption with --resume and no other flag.
    """
    from ...report import ConsoleProgress, ShrinkReport, emit  # noqa: PLC0415
    from ...shrink import PRUNE_FILE, PruneRequest, prune_detector  # noqa: PLC0415
    from ...units import parse_size  # noqa: PLC0415

    with contextlib.ExitStack() as stack:
        if resume is not None:
            request: PruneRequest = PRUNE_FILE.load(find_shrink_run(resume, PRUNE_FILE.name))
            notes: tuple[str, ...] = (f"resuming {request.config.run_dir}",)
        else:
            if weights is None or data is None:
                raise missing_flag("--data" if data is None else "--weights")
            flags = TrainingFlags(data, epochs, img, batch, device, budget, settings)
            config, notes = flags.config(stack.enter_context(create_run_dir(name, RUNS)))
            fraction = _OPS if ops is None and memory is None else ops
            limit = None if memory is None else parse_size(memory)
            request = PruneRequest(replace(config, weights=weights), gpu, fraction, limit, steps)
        progress = stack.enter_context(ConsoleProgress(quiet=json))
        for note in notes:
            progress.log(note)
        stack.enter_context(resume_hint("prune", request.config.run_dir))
        result = prune_detector(request, progress)
    emit(ShrinkReport(result), as_json=json)
