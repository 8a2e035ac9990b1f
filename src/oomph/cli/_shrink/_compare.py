"""`oomph shrink compare`."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from ...errors import UsageError
from .._options import Gpu, Json, Side
from ._options import check_imgsz

if TYPE_CHECKING:
    from ...shrink import VariantLimits


def compare(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILES", help="Weights and exported files; the first is what the others are compared to."
        ),
    ],
    data: Annotated[
        Path, typer.Option(metavar="YAML", help="The dataset: mAP is measured on val, training is predicted for train.")
    ],
    img: Side = 640,
    batch: Annotated[
        int, typer.Option("--batch", "--batch-size", help="Images per step of the predicted training.")
    ] = 16,
    gpu: Gpu = None,
    max_loss: Annotated[float, typer.Option(metavar="POINTS", help="Points of mAP50 that may be lost.")] = 1.0,
    max_latency: Annotated[
        Optional[float],  # noqa: UP045  typer on Python 3.10 reads it at run time
        typer.Option(metavar="MS", help="Milliseconds that an image may take.", show_default="no limit"),
    ] = None,
    max_memory: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="SIZE", help="Inference memory that may be used.", show_default="no limit"),
    ] = None,
    plot: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="FILE", help="Write a plot as PNG: mAP against memory and latency.", show_default="none"),
    ] = None,
    json: Json = False,
) -> None:
    """Measure variants of a detector side by side, and recommend one."""
    from ...report import CompareReport, ConsoleProgress, emit, save_compare_plot  # noqa: PLC0415
    from ...shrink import CompareRequest, compare_variants  # noqa: PLC0415

    check_imgsz(img)
    if plot is not None:
        _check_plot(plot)
    progress = ConsoleProgress(quiet=json)
    limits = _limits(max_loss, max_latency, max_memory)
    result = compare_variants(CompareRequest(tuple(files), data, img, batch, gpu, limits), progress.log)
    if plot is not None:
        try:
            save_compare_plot(result, plot)
        except OSError as error:
            progress.log(f"'{plot}' can't be written ({error.strerror})")  # the measurements are worth more
        else:
            progress.log(f"written: {plot}")
    emit(CompareReport(result), as_json=json)


def _limits(max_loss: float, max_latency: float | None, max_memory: str | None) -> VariantLimits:
    """Return the limits of the recommended variant.

    Raises:
        UsageError: a limit is negative, not a number, or not a size.
    """
    from ...shrink import VariantLimits  # noqa: PLC0415
    from ...units import parse_size  # noqa: PLC0415

    if not 0 <= max_loss < math.inf:
        raise UsageError(f"--max-loss is {max_loss:g}", "use a number of points from 0, such as 1")
    if max_latency is not None and not 0 < max_latency < math.inf:
        raise UsageError(f"--max-latency is {max_latency:g}", "use a number of milliseconds above 0, such as 25")
    memory = None if max_memory is None else parse_size(max_memory)
    if memory == 0:
        raise UsageError("--max-memory is 0", "use a size above 0, such as 200MiB")
    return VariantLimits(max_loss, None if max_latency is None else max_latency / 1000, memory)


def _check_plot(path: Path) -> None:
    if path.suffix.lower() != ".png":
        raise UsageError(f"--plot is '{path}'", "use a name that ends in .png")
    if path.is_dir() or not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise UsageError(f"'{path}' can't be written", "pass a file in an existing folder that is writable")
