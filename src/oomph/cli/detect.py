"""`oomph detect`."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Optional

import typer

from ..errors import UsageError
from ._options import Device, Json, Side, Weights, check_shares
from ._runs import claimed_folder

_RUNS = Path("runs/detect")


def detect(
    context: typer.Context,
    weights: Weights,
    images: Annotated[
        Optional[list[str]],  # noqa: UP045  typer on Python 3.10 reads it at run time
        typer.Argument(help="Images, folders, patterns, or text files of paths.", show_default=False),
    ] = None,
    source: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="The same, as YOLOv5 calls it.", show_default=False),
    ] = None,
    img: Side = 640,
    tiles: Annotated[
        int,
        typer.Option(metavar="PIXELS", help="Search large images by windows of this side.", show_default="whole"),
    ] = 0,
    sure: Annotated[float, typer.Option("--conf-thres", help="How sure a box must be.")] = 0.25,
    overlap: Annotated[float, typer.Option("--iou-thres", help="How much boxes of one object overlap.")] = 0.45,
    most: Annotated[int, typer.Option("--max-det", help="Boxes of an image at most.")] = 300,
    classes: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="N,…", help="Numbers of the classes that are looked for.", show_default="all"),
    ] = None,
    agnostic: Annotated[
        bool, typer.Option("--agnostic-nms", help="Let boxes take the place of those of other classes too.")
    ] = False,
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="FOLDER", help="Where pictures and texts go.", show_default="a new one in runs/detect"),
    ] = None,
    device: Device = None,
    json: Json = False,
) -> None:
    """Find objects in images, and draw boxes around them.

    For each image a picture with boxes and a text file in YOLO's format are written; --json tells all boxes.
    """
    from ..detect import Suppression, find_objects  # noqa: PLC0415
    from ..report import FoundReport, TrainTeller, emit  # noqa: PLC0415
    from .train import device_name  # noqa: PLC0415

    where = [*(images or []), *([source] if source else [])]
    if not where:
        raise UsageError("no images are named", "name an image or a folder of images")
    if img < 32:  # noqa: PLR2004  the largest stride
        raise UsageError(f"the image size is {img}", "it must be at least 32")
    check_shares(sure, overlap)
    if most < 1:
        raise UsageError(f"--max-det is {most}", "it must be at least 1")
    limits = Suppression(sure, overlap, most, classes=_classes(classes), across_classes=agnostic)
    teller = TrainTeller(quiet=json)
    for one in context.obj:
        teller.said(one)
    with nullcontext(out) if out else claimed_folder("exp", _RUNS) as folder:
        found = find_objects(weights, where, folder, size=img, limits=limits, device=device_name(device), tiles=tiles)
    emit(FoundReport(found), as_json=json)


def _classes(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    if not all(one.strip().isdigit() for one in text.split(",")):
        raise UsageError(f"--classes is {text!r}", "write numbers of classes, such as 0,2")
    return tuple(int(one) for one in text.split(","))
