"""`oomph val`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from ..errors import UsageError
from ..files import check_run_name
from ._devices import device_name
from ._options import Device, Json, Side, Weights, check_shares
from ._runs import create_run_dir

_RUNS = Path("runs/val")
_SPLITS = ("train", "val", "test")
_MIN_IMGSZ = 32  # the largest stride


def val(
    context: typer.Context,
    weights: Weights,
    data: Annotated[Path, typer.Option(metavar="YAML", help="The dataset.")],
    task: Annotated[str, typer.Option(metavar="train|val|test", help="The split to score.")] = "val",
    img: Side = 640,
    tiles: Annotated[
        int,
        typer.Option(metavar="PIXELS", help="Side of the tiles that images are cut into.", show_default="no tiles"),
    ] = 0,
    conf_thres: Annotated[float, typer.Option("--conf-thres", help="Minimum confidence of a box.")] = 0.001,
    iou_thres: Annotated[float, typer.Option("--iou-thres", help="IoU threshold of NMS.")] = 0.6,
    batch: Annotated[int, typer.Option("--batch", "--batch-size", help="Images per batch.")] = 16,
    device: Device = None,
    name: Annotated[str, typer.Option(help="Name of the folder in runs/val for plots.")] = "exp",
    json: Json = False,
) -> None:
    """Score a detector on a dataset: mAP, also by class and object size.

    Draws precision, recall and F1 curves, a confusion matrix, and images with labels and predictions.
    """
    from ..detect import VAL_NMS, InferenceConfig, validate_weights  # noqa: PLC0415
    from ..report import ConsoleProgress, ScoresReport, emit  # noqa: PLC0415

    if task not in _SPLITS:
        raise UsageError(f"{task!r} is not a split", f"choose one of {', '.join(_SPLITS)}")
    if batch < 1 or img < _MIN_IMGSZ:
        raise UsageError(f"batch is {batch} and the image size is {img}", f"use at least 1 and {_MIN_IMGSZ}")
    check_shares(conf_thres, iou_thres)
    nms = replace(VAL_NMS, conf_thres=conf_thres, iou_thres=iou_thres)
    config = InferenceConfig(weights, img, device_name(device), tiles, nms)
    progress, notes = ConsoleProgress(quiet=json), list[str]()

    def log(message: str) -> None:
        notes.append(message)
        progress.log(message)

    for note in context.obj:
        log(note)
    with contextlib.ExitStack() as stack:
        folder = _create_folder(name, stack, log)
        scores = validate_weights(config, data, task, batch, log, folder)
    emit(ScoresReport(scores, tuple(notes), None if folder is None else str(folder)), as_json=json)


def _create_folder(name: str, stack: contextlib.ExitStack, log: Callable[[str], None]) -> Path | None:
    """Return a new folder for plots; None, with a note, where none can be created: scores don't need it."""
    check_run_name(name)
    try:
        return stack.enter_context(create_run_dir(name, _RUNS))
    except UsageError as error:
        log(f"no plots are written: {error.why}")
        return None
