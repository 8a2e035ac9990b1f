"""Options that several commands share."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from ..errors import UsageError
from ..settings import PARALLEL, PRECISIONS

if TYPE_CHECKING:
    from ..machine import Target

Json = Annotated[bool, typer.Option("--json", help="Write one JSON document to standard output and nothing else.")]
Gpu = Annotated[
    Optional[str],  # noqa: UP045  typer on Python 3.10 reads it at run time
    typer.Option(
        metavar="NAME",
        help='GPU or cloud machine: "RTX 3060", H200, g5.xlarge; or cpu.',
        show_default="this machine's",
    ),
]
SampleSize = Annotated[
    str, typer.Option("--size", "--img", metavar="N|HxW", help="Image side or sequence length, for the Job's batch.")
]
Precision = enum.Enum("Precision", {name: name for name in PRECISIONS}, type=str)  # type: ignore[misc]
ParallelMode = enum.Enum("ParallelMode", {name: name for name in PARALLEL}, type=str)  # type: ignore[misc]
Parallel = Annotated[ParallelMode, typer.Option(help="How several ranks train together.")]
Ranks = Annotated[int, typer.Option(metavar="N", help="Ranks that train together, one for each GPU.")]
NO_PARALLEL = ParallelMode("none")
Device = Annotated[
    Optional[str],  # noqa: UP045  typer on Python 3.10 reads it at run time
    typer.Option(metavar="cpu|N", help="The device to run on.", show_default="the first GPU, or cpu"),
]
Side = Annotated[int, typer.Option("--img", "--imgsz", "--img-size", help="Image size, in pixels.")]
Weights = Annotated[Path, typer.Option(metavar="FILE", help="Weights of a YOLOv5 model, from YOLOv5 or oomph.")]


def check_shares(confidence: float, iou: float) -> None:
    """Raise if a threshold is outside 0 to 1.

    Raises:
        UsageError: `--conf-thres` or `--iou-thres` is not between 0 and 1.
    """
    for name, value in (("--conf-thres", confidence), ("--iou-thres", iou)):
        if not 0 <= value <= 1:
            raise UsageError(f"{name} is {value}", "it must be between 0 and 1")


def target_named(gpu: str | None) -> Target:
    """Return the target of --gpu; without it this machine's, with the memory that is free now."""
    from ..machine import find_target, this_target  # noqa: PLC0415

    return this_target() if gpu is None else find_target(gpu)


def network_name(cfg: str) -> str:
    """Return the network that a name means; YOLOv5's names such as models/yolov5s.yaml mean its sizes."""
    return Path(cfg).stem.lower().removeprefix("yolov5")
