"""`oomph predict`."""

from __future__ import annotations

import enum
from typing import Annotated, Optional

import typer

from ..settings import CHECKPOINTING, MEMORY_FORMATS, OPTIMIZERS, PRECISIONS
from ._options import Json

Precision = enum.Enum("Precision", {name: name for name in PRECISIONS}, type=str)  # type: ignore[misc]
Layout = enum.Enum("Layout", {name: name for name in MEMORY_FORMATS}, type=str)  # type: ignore[misc]
Checkpointing = enum.Enum("Checkpointing", {name: name for name in CHECKPOINTING}, type=str)  # type: ignore[misc]
Variant = enum.Enum("Variant", {name: name for name in OPTIMIZERS}, type=str)  # type: ignore[misc]


def predict(
    job: Annotated[str, typer.Argument(help="What to train: path/to/file.py:function, which returns an oomph.Job.")],
    gpu: Annotated[
        str, typer.Option(metavar="NAME", help='On which GPU or cloud machine: "RTX 3060", H200, g5.xlarge; or cpu.')
    ],
    batch: Annotated[int, typer.Option(help="Samples per optimizer step.")] = 16,
    size: Annotated[
        str,
        typer.Option("--size", "--img", metavar="N|HxW", help="Image side or sequence length, for the Job's batch."),
    ] = "0",
    micro_batch: Annotated[
        Optional[int],  # noqa: UP045  typer on Python 3.10 reads it at run time
        typer.Option(help="Samples per piece; the whole batch at once if not given.", show_default=False),
    ] = None,
    precision: Annotated[Precision, typer.Option(help="What to compute in.")] = Precision("fp32"),
    memory_format: Annotated[Layout, typer.Option(help="Layout of images and weights.")] = Layout("contiguous"),
    checkpointing: Annotated[Checkpointing, typer.Option(help="Blocks to run again in backward.")] = Checkpointing(
        "none"
    ),
    optimizer: Annotated[Variant, typer.Option(help="How the optimizer's update runs.")] = Variant("given"),
    allocator: Annotated[
        str,
        typer.Option(metavar="default|expandable|KNOBS", help="Torch's allocator, or its PYTORCH_ALLOC_CONF."),
    ] = "expandable",
    json: Json = False,
) -> None:
    """Tell what a training step will need on a GPU, before it runs and without that GPU.

    Traces the step without computing or allocating anything, replays torch's allocator, and says whether it fits, how
    close it is, what the peak is made of, and what would help most.
    """
    from ..job import load_job  # noqa: PLC0415
    from ..ledger import predict as predict_job  # noqa: PLC0415
    from ..machine import find_target  # noqa: PLC0415
    from ..report import PredictReport, emit  # noqa: PLC0415
    from ..settings import Settings, parse_side  # noqa: PLC0415

    settings = Settings(
        batch=batch,
        micro_batch=micro_batch,
        size=parse_side(size),
        precision=precision.value,
        memory_format=memory_format.value,
        allocator=allocator,
        checkpointing=checkpointing.value,
        optimizer=optimizer.value,
    )
    target = find_target(gpu)
    made = predict_job(load_job(job), settings, target)
    emit(PredictReport(made, settings, target), as_json=json)
