"""`oomph val`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from ..errors import UsageError
from ._options import Device, Json, Side, Weights, check_shares

_SPLITS = ("train", "val", "test")


def val(
    context: typer.Context,
    weights: Weights,
    data: Annotated[Path, typer.Option(metavar="YAML", help="The data set.")],
    task: Annotated[str, typer.Option(metavar="train|val|test", help="Which of its splits.")] = "val",
    img: Side = 640,
    tiles: Annotated[
        int,
        typer.Option(metavar="PIXELS", help="Look at images by windows of this side.", show_default="whole"),
    ] = 0,
    sure: Annotated[float, typer.Option("--conf-thres", help="How sure a box must be to be scored.")] = 0.001,
    overlap: Annotated[float, typer.Option("--iou-thres", help="How much boxes of one object overlap.")] = 0.6,
    batch: Annotated[int, typer.Option("--batch", "--batch-size", help="Images that are run at once.")] = 16,
    device: Device = None,
    json: Json = False,
) -> None:
    """Tell how good a detector is on a data set: mAP, by class and by object size."""
    from ..detect import VALIDATION, evaluate_weights  # noqa: PLC0415
    from ..report import ScoresReport, TrainTeller, emit  # noqa: PLC0415

    if task not in _SPLITS:
        raise UsageError(f"{task!r} is no split", f"it must be one of {', '.join(_SPLITS)}")
    if batch < 1 or img < 32:  # noqa: PLR2004  the largest stride
        raise UsageError(f"batch is {batch} and the image size {img}", "make them at least 1 and 32")
    from .train import device_name  # noqa: PLC0415

    check_shares(sure, overlap)
    teller, notes = TrainTeller(quiet=json), list[str]()

    def say(words: str) -> None:
        notes.append(words)
        teller.said(words)

    for one in context.obj:
        say(one)
    limits = replace(VALIDATION, confidence=sure, overlap=overlap)
    scores = evaluate_weights(
        weights, data, task, img, batch, device_name(device), tiles=tiles, limits=limits, said=say
    )
    emit(ScoresReport(scores, tuple(notes)), as_json=json)
