"""`oomph predict`."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from ..errors import UsageError
from ..settings import CHECKPOINTING, MEMORY_FORMATS, OPTIMIZERS, PRECISIONS
from ._options import Json

if TYPE_CHECKING:
    from ..monitor import Measurement
    from ..prediction import Prediction
    from ..settings import Settings

Precision = enum.Enum("Precision", {name: name for name in PRECISIONS}, type=str)  # type: ignore[misc]
Layout = enum.Enum("Layout", {name: name for name in MEMORY_FORMATS}, type=str)  # type: ignore[misc]
Checkpointing = enum.Enum("Checkpointing", {name: name for name in CHECKPOINTING}, type=str)  # type: ignore[misc]
Variant = enum.Enum("Variant", {name: name for name in OPTIMIZERS}, type=str)  # type: ignore[misc]


def predict(
    job: Annotated[str, typer.Argument(help="What to train: path/to/file.py:function, which returns an oomph.Job.")],
    gpu: Annotated[
        Optional[str],  # noqa: UP045  typer on Python 3.10 reads it at run time
        typer.Option(
            metavar="NAME",
            help='On which GPU or cloud machine: "RTX 3060", H200, g5.xlarge; or cpu.',
            show_default="this machine's",
        ),
    ] = None,
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
    measure: Annotated[
        bool, typer.Option("--measure", help="Run a few steps here too, compare, and remember the difference.")
    ] = False,
    json: Json = False,
) -> None:
    """Tell what a training step will need on a GPU, before it runs and without that GPU.

    Traces the step without computing or allocating anything, replays torch's allocator, and says whether it fits, how
    close it is, what the peak is made of, and what would help most.
    """
    from ..job import load_job  # noqa: PLC0415
    from ..machine import find_target, this_device  # noqa: PLC0415
    from ..prediction import predict as predict_job  # noqa: PLC0415
    from ..report import PredictReport, emit  # noqa: PLC0415
    from ..settings import Settings, parse_sample_size  # noqa: PLC0415

    settings = Settings(
        batch=batch,
        micro_batch=micro_batch,
        size=parse_sample_size(size),
        precision=precision.value,
        memory_format=memory_format.value,
        allocator=allocator,
        checkpointing=checkpointing.value,
        optimizer=optimizer.value,
    )
    here = this_device()
    target = find_target(gpu or here)
    is_here = target.name == find_target(here).name
    if measure and not is_here:
        raise UsageError(f"--measure runs on this machine, which has {here}, not {target.name}", "leave --gpu out")
    made = predict_job(load_job(job), settings, target)
    measured = _compare(job, settings, made) if measure else None
    if is_here and not measure:
        made = _corrected(made, here)
    emit(PredictReport(made, settings, target, measured), as_json=json)


def _compare(job: str, settings: Settings, made: Prediction) -> Measurement:
    """Run it, and remember how far the prediction was off."""
    from ..monitor import measure  # noqa: PLC0415
    from ..prediction import Comparison, remember  # noqa: PLC0415

    found = measure(job, settings)
    remember(
        Comparison(
            device=found.device,
            software=found.software,
            allocated=found.allocated / made.allocated.value,
            reserved=found.reserved / made.reserved.value,
            seconds=found.seconds / made.seconds.value,
            outside=found.outside,
        )
    )
    return found


def _corrected(made: Prediction, device: str) -> Prediction:
    """What earlier runs on this device teach."""
    from ..prediction import calibrated, load_calibration  # noqa: PLC0415

    known = load_calibration()
    latest = next((pair for pair in known.devices() if pair[0] == device), None)
    return made if latest is None else calibrated(made, known.of(*latest))
