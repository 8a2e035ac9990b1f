"""`oomph detect`."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Optional

import typer

from ..errors import UsageError
from ._devices import device_name
from ._options import Device, Json, Side, Weights, check_shares
from ._runs import create_run_dir

_RUNS = Path("runs/detect")
_MIN_IMGSZ = 32  # the largest stride


def detect(
    context: typer.Context,
    weights: Weights,
    images: Annotated[
        Optional[list[str]],  # noqa: UP045  typer on Python 3.10 reads it at run time
        typer.Argument(help="Images, folders, patterns, or text files of paths.", show_default=False),
    ] = None,
    source: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="YOLOv5's flag for IMAGES.", show_default=False),
    ] = None,
    img: Side = 640,
    tiles: Annotated[
        int,
        typer.Option(
            metavar="PIXELS", help="Side of the tiles that large images are cut into.", show_default="no tiles"
        ),
    ] = 0,
    conf_thres: Annotated[float, typer.Option("--conf-thres", help="Minimum confidence of a box.")] = 0.25,
    iou_thres: Annotated[float, typer.Option("--iou-thres", help="IoU threshold of NMS.")] = 0.45,
    max_det: Annotated[int, typer.Option("--max-det", help="Maximum number of boxes per image.")] = 300,
    classes: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="N,…", help="Numbers of the classes to detect.", show_default="all"),
    ] = None,
    agnostic_nms: Annotated[
        bool, typer.Option("--agnostic-nms", help="Suppress overlapping boxes of other classes too.")
    ] = False,
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="FOLDER", help="Output folder.", show_default="a new one in runs/detect"),
    ] = None,
    device: Device = None,
    json: Json = False,
) -> None:
    """Detect objects in images, and draw boxes around them.

    Writes a copy with boxes and a YOLO text file for each image; --json prints all boxes.
    """
    from ..detect import InferenceConfig, NmsConfig, detect_objects  # noqa: PLC0415
    from ..report import ConsoleProgress, DetectReport, emit  # noqa: PLC0415

    sources = [*(images or []), *([source] if source else [])]
    if not sources:
        raise UsageError("no images are given", "pass an image or a folder of images")
    if img < _MIN_IMGSZ:
        raise UsageError(f"the image size is {img}", f"use at least {_MIN_IMGSZ}")
    check_shares(conf_thres, iou_thres)
    if max_det < 1:
        raise UsageError(f"--max-det is {max_det}", "use at least 1")
    nms = NmsConfig(conf_thres, iou_thres, max_det, classes=_parse_classes(classes), agnostic=agnostic_nms)
    config = InferenceConfig(weights, img, device_name(device), tiles, nms)
    progress = ConsoleProgress(quiet=json)
    for note in context.obj:
        progress.log(note)
    with nullcontext(out) if out else create_run_dir("exp", _RUNS) as folder:
        result = detect_objects(config, sources, folder)
    emit(DetectReport(result), as_json=json)


def _parse_classes(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    if not all(number.strip().isdigit() for number in text.split(",")):
        raise UsageError(f"--classes is {text!r}", "pass class numbers, such as 0,2")
    return tuple(int(number) for number in text.split(","))
