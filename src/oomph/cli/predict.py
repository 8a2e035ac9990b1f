"""`oomph predict`."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from ..errors import UsageError, quote
from ..settings import CHECKPOINTING, MEMORY_FORMATS, OPTIMIZERS, PRECISIONS
from ._options import Json

# Names of Jobs, and the sizes of their YOLOv5 detectors.
BUILT_IN = {f"yolov5{size}": size for size in "nsmlx"}
_BUILT_IN_SIZE = "640"

if TYPE_CHECKING:
    from ..job import Job
    from ..monitor import Measurement
    from ..prediction import Prediction
    from ..settings import Settings

Precision = enum.Enum("Precision", {name: name for name in PRECISIONS}, type=str)  # type: ignore[misc]
MemoryFormat = enum.Enum("MemoryFormat", {name: name for name in MEMORY_FORMATS}, type=str)  # type: ignore[misc]
Checkpointing = enum.Enum("Checkpointing", {name: name for name in CHECKPOINTING}, type=str)  # type: ignore[misc]
OptimizerVariant = enum.Enum("OptimizerVariant", {name: name for name in OPTIMIZERS}, type=str)  # type: ignore[misc]


def predict(
    job: Annotated[
        str,
        typer.Argument(
            help="What to train: path/to/file.py:function, which returns an oomph.Job; or yolov5n, s, m, l, x."
        ),
    ],
    gpu: Annotated[
        Optional[str],  # noqa: UP045  typer on Python 3.10 reads it at run time
        typer.Option(
            metavar="NAME",
            help='GPU or cloud machine: "RTX 3060", H200, g5.xlarge; or cpu.',
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
        typer.Option(help="Samples per forward and backward pass.", show_default="the whole batch"),
    ] = None,
    precision: Annotated[Precision, typer.Option(help="Precision to compute in.")] = Precision("fp32"),
    memory_format: Annotated[MemoryFormat, typer.Option(help="Layout of images and weights.")] = MemoryFormat(
        "contiguous"
    ),
    checkpointing: Annotated[Checkpointing, typer.Option(help="What to recompute in backward.")] = Checkpointing(
        "none"
    ),
    optimizer: Annotated[
        OptimizerVariant, typer.Option(help="Implementation of the optimizer's update.")
    ] = OptimizerVariant("given"),
    allocator: Annotated[
        str,
        typer.Option(metavar="default|expandable|OPTIONS", help="Torch's allocator, or its PYTORCH_ALLOC_CONF."),
    ] = "expandable",
    measure: Annotated[
        bool, typer.Option("--measure", help="Also run a few steps on this machine, compare, and save the difference.")
    ] = False,
    json: Json = False,
) -> None:
    """Predict the memory of a training step on a GPU, before it runs and without that GPU.

    Traces the step without computing or allocating anything and replays torch's allocator. Reports whether the step
    fits, the composition of its peak, and a suggestion.
    """
    from ..settings import Settings, parse_sample_size  # noqa: PLC0415

    if size == "0" and job in BUILT_IN:
        size = _BUILT_IN_SIZE
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
    _report(job, settings, gpu, measure=measure, as_json=json)


def _report(reference: str, settings: Settings, gpu: str | None, *, measure: bool, as_json: bool) -> None:
    from ..machine import find_target, this_device  # noqa: PLC0415
    from ..prediction import predict as predict_job  # noqa: PLC0415
    from ..report import PredictReport, emit  # noqa: PLC0415

    device = this_device()
    target = find_target(gpu or device)
    is_local = target.name == find_target(device).name
    if measure and reference in BUILT_IN:
        raise UsageError(
            f"--measure runs a Job of a file, not {quote(reference)}", "write a file with a function that returns it"
        )
    if measure and not is_local:
        raise UsageError(f"--measure runs on this machine, which has {device}, not {target.name}", "omit --gpu")
    prediction = predict_job(_find_job(reference), settings, target)
    measured = _measure(reference, settings, prediction) if measure else None
    if is_local and not measure:
        prediction = _calibrate(prediction, device)
    emit(PredictReport(prediction, settings, target, measured), as_json=as_json)


def _find_job(reference: str) -> Job:
    """Return a built-in Job, or the one of a file."""
    from ..job import load_job  # noqa: PLC0415

    if reference not in BUILT_IN:
        return load_job(reference)
    from ..detect import detection_job  # noqa: PLC0415

    return detection_job(BUILT_IN[reference])


def _measure(reference: str, settings: Settings, prediction: Prediction) -> Measurement:
    """Run the Job and save the error of the prediction."""
    from ..monitor import measure  # noqa: PLC0415
    from ..prediction import Comparison, save_comparison  # noqa: PLC0415

    measurement = measure(reference, settings)
    save_comparison(
        Comparison(
            device=measurement.device,
            software=measurement.software,
            allocated=measurement.allocated / prediction.allocated.value,
            reserved=measurement.reserved / prediction.reserved.value,
            seconds=measurement.seconds / prediction.seconds.value,
            outside=measurement.outside,
        )
    )
    return measurement


def _calibrate(prediction: Prediction, device: str) -> Prediction:
    """Correct the prediction by the measured runs on this device with the latest software."""
    from ..prediction import calibrate, load_calibration  # noqa: PLC0415

    calibration = load_calibration()
    latest = next((pair for pair in calibration.environments() if pair[0] == device), None)
    return prediction if latest is None else calibrate(prediction, calibration.select(*latest))
