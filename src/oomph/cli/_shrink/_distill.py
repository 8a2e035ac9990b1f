"""`oomph shrink distill`."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from .._options import Device, Json, Side, network_name
from .._runs import create_run_dir
from ._training import (
    RUNS,
    Batch,
    Budget,
    Epochs,
    Name,
    Resume,
    SettingsFile,
    TrainingData,
    TrainingFlags,
    find_shrink_run,
    missing_flag,
    resume_hint,
)

_STUDENT = "n"


def distill(
    teacher: Annotated[
        Optional[Path],  # noqa: UP045  typer on Python 3.10 reads it at run time
        typer.Option(metavar="FILE", help="The trained detector to learn from.", show_default=False),
    ] = None,
    data: TrainingData = None,
    cfg: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="n|s|m|l|x|NAME",
            help="The student: a size of YOLOv5, or its neck on mobilenet, shufflenet or depthwise.",
            show_default=f"that of the weights, or {_STUDENT}",
        ),
    ] = None,
    weights: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="FILE", help="Initial weights of the student.", show_default="fresh ones"),
    ] = None,
    epochs: Epochs = 100,
    img: Side = 640,
    batch: Batch = 16,
    device: Device = None,
    budget: Budget = None,
    settings: SettingsFile = None,
    name: Name = "distill",
    resume: Resume = None,
    json: Json = False,
) -> None:
    """Train a small detector that learns from a large one, under the guard.

    Goes on after an interruption with --resume and no other flag.
    """
    from ...detect import load_config  # noqa: PLC0415
    from ...report import ConsoleProgress, ShrinkReport, emit  # noqa: PLC0415
    from ...shrink import distill_detector  # noqa: PLC0415

    with contextlib.ExitStack() as stack:
        if resume is not None:
            config = load_config(find_shrink_run(resume, "config.json")).resolved
            notes: tuple[str, ...] = (f"resuming {config.run_dir}",)
        else:
            if teacher is None or data is None:
                raise missing_flag("--data" if data is None else "--teacher")
            network = _student_network(weights, cfg)
            flags = TrainingFlags(data, epochs, img, batch, device, budget, settings)
            config, notes = flags.config(stack.enter_context(create_run_dir(name, RUNS)))
            config = replace(config, teacher=teacher, weights=weights, **network)
        progress = stack.enter_context(ConsoleProgress(quiet=json))
        for note in notes:
            progress.log(note)
        stack.enter_context(resume_hint("distill", config.run_dir))
        result = distill_detector(config, progress, resume=resume is not None)
    emit(ShrinkReport(result), as_json=json)


def _student_network(weights: Path | None, cfg: str | None) -> dict[str, Any]:
    """Return the fields of TrainConfig about the student's network.

    Raises:
        MissingFile: there is no such file.
        UsageError: the weights aren't a detector, or that of another network than `cfg`.
    """
    from ...detect import read_weights  # noqa: PLC0415

    if weights is None:
        return {"cfg": _STUDENT if cfg is None else network_name(cfg)}
    content = read_weights(weights)
    content.check_network(content.size if cfg is None else network_name(cfg))
    return {"cfg": content.size, "widths": content.widths}
