"""`oomph detect`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..errors import WrongCall
from ._options import Device, Json, Side, Weights


def detect(
    weights: Weights,
    images: Annotated[Path | None, typer.Argument(help="An image, or a folder of images.", show_default=False)] = None,
    source: Annotated[Path | None, typer.Option(help="The same, as YOLOv5 calls it.", show_default=False)] = None,
    img: Side = 640,
    tiles: Annotated[
        int,
        typer.Option(metavar="PIXELS", help="Search large images by windows of this side.", show_default="whole"),
    ] = 0,
    sure: Annotated[float, typer.Option("--conf-thres", help="How sure a box must be.")] = 0.25,
    overlap: Annotated[float, typer.Option("--iou-thres", help="How much boxes of one object overlap.")] = 0.45,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where pictures and texts go.")] = Path("runs/detect"),
    device: Device = None,
    json: Json = False,
) -> None:
    """Find objects in images, and draw boxes around them.

    For each image a picture with boxes and a text file in YOLO's format are written; --json tells all boxes.
    """
    from ..detect import find_objects  # noqa: PLC0415
    from ..report import FoundReport, emit  # noqa: PLC0415
    from .train import device_name  # noqa: PLC0415

    where = images or source
    if where is None or (images and source):
        said = "no images are named" if where is None else f"both '{images}' and --source '{source}' are named"
        raise WrongCall(said, "name an image or a folder of images")
    for name, value in (("--conf-thres", sure), ("--iou-thres", overlap)):
        if not 0 <= value <= 1:
            raise WrongCall(f"{name} is {value}", "it must be between 0 and 1")
    found = find_objects(weights, where, out, size=img, limits=(sure, overlap), device=device_name(device), tiles=tiles)
    emit(FoundReport(found), as_json=json)
