"""`oomph shrink quantize`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from .._devices import device_name
from .._options import Device, Json, Side, Weights
from ._options import Data, Out, check_imgsz


def quantize(
    weights: Weights,
    data: Data,
    epochs: Annotated[
        int, typer.Option(min=0, help="Epochs of quantization-aware training; 0 calibrates without training.")
    ] = 0,
    batch: Annotated[int, typer.Option("--batch", "--batch-size", help="Images per iteration of the training.")] = 16,
    img: Side = 640,
    device: Device = None,
    budget: Annotated[
        Optional[str],  # noqa: UP045  typer on Python 3.10 reads it at run time
        typer.Option(metavar="SIZE", help="Memory that the training may use.", show_default="all of it"),
    ] = None,
    settings: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="YAML", help="Settings of the training, as for `oomph train`.", show_default="none"),
    ] = None,
    out: Out = None,
    json: Json = False,
) -> None:
    """Quantize a detector to int8, by calibration or after quantization-aware training."""
    from ...report import ConsoleProgress, ShrinkReport, emit  # noqa: PLC0415
    from ...shrink import QuantizeRequest, shrink_quantize  # noqa: PLC0415
    from ...units import parse_size  # noqa: PLC0415

    check_imgsz(img)
    request = QuantizeRequest(
        weights=weights,
        data=data,
        imgsz=img,
        epochs=epochs,
        out=out,
        batch=batch,
        device=device_name(device),
        budget=None if budget is None else parse_size(budget),
        settings=settings,
    )
    with ConsoleProgress(quiet=json) as progress:
        try:
            result = shrink_quantize(request, progress)
        except (KeyboardInterrupt, SystemExit):
            if request.epochs and request.run_dir.exists():
                typer.echo("stopped; the same command continues the training", err=True)
            raise
    emit(ShrinkReport(result), as_json=json)
