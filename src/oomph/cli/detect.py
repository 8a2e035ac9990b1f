"""`oomph detect`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Optional

import typer

from ..errors import WrongCall
from ._options import Device, Json, Side, Weights
from ._runs import new_folder

_RUNS = Path("runs/detect")


def detect(
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
    from ..report import FoundReport, emit  # noqa: PLC0415
    from .train import device_name  # noqa: PLC0415

    where = [*(images or []), *([source] if source else [])]
    if not where:
        raise WrongCall("no images are named", "name an image or a folder of images")
    if img < 32:  # noqa: PLR2004  the largest stride
        raise WrongCall(f"the image size is {img}", "it must be at least 32")
    for name, value in (("--conf-thres", sure), ("--iou-thres", overlap)):
        if not 0 <= value <= 1:
            raise WrongCall(f"{name} is {value}", "it must be between 0 and 1")
    limits = Suppression(confidence=sure, overlap=overlap)
    with _folder(out) as folder:
        found = find_objects(weights, where, folder, size=img, limits=limits, device=device_name(device), tiles=tiles)
    emit(FoundReport(found), as_json=json)


@contextmanager
def _folder(out: Path | None) -> Iterator[Path]:
    """The folder that was named, or a new one, which goes again where nothing came of it."""
    folder = out or new_folder("exp", _RUNS)
    try:
        yield folder
    finally:
        if out is None:
            with suppress(OSError):  # it isn't empty, as it should be
                folder.rmdir()
