"""`oomph predict`."""

from __future__ import annotations

import enum
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from ..errors import UsageError, quote
from ..settings import CHECKPOINTING, MEMORY_FORMATS, OPTIMIZERS
from ._job_argument import (
    BUILT_IN_SIZE,
    JobOrScript,
    MaxSeconds,
    Script,
    Yes,
    built_in_jobs,
    find_job,
    is_script,
    reject_arguments,
    reject_job_flags,
)
from ._options import NO_PARALLEL, Gpu, Json, Parallel, Precision, Ranks, SampleSize, target_named

if TYPE_CHECKING:
    from ..monitor import Measurement
    from ..prediction import Prediction, TimelineFiles
    from ..settings import Settings

MemoryFormat = enum.Enum("MemoryFormat", {name: name for name in MEMORY_FORMATS}, type=str)  # type: ignore[misc]
OptimizerVariant = enum.Enum("OptimizerVariant", {name: name for name in OPTIMIZERS}, type=str)  # type: ignore[misc]


def predict(
    job: JobOrScript,
    gpu: Gpu = None,
    batch: Annotated[
        Optional[int],  # noqa: UP045  typer on Python 3.10 reads it at run time
        typer.Option(
            help="Samples per optimizer step of a Job, or per batch of a script.", show_default="16, or the script's"
        ),
    ] = None,
    size: SampleSize = "0",
    micro_batch: Annotated[
        Optional[int],  # noqa: UP045  typer on Python 3.10 reads it at run time
        typer.Option(help="Samples per forward and backward pass.", show_default="the whole batch"),
    ] = None,
    precision: Annotated[Precision, typer.Option(help="Precision to compute in.")] = Precision("fp32"),
    memory_format: Annotated[MemoryFormat, typer.Option(help="Layout of images and weights.")] = MemoryFormat(
        "contiguous"
    ),
    checkpointing: Annotated[
        str, typer.Option(metavar="none|blocks|MODULES", help="What to recompute in backward; paths of modules: a,b.c.")
    ] = "none",
    optimizer: Annotated[
        OptimizerVariant, typer.Option(help="Implementation of the optimizer's update.")
    ] = OptimizerVariant("given"),
    allocator: Annotated[
        Optional[str],  # noqa: UP045  typer on Python 3.10 reads it at run time
        typer.Option(
            metavar="default|expandable|OPTIONS",
            help="Torch's allocator, or its PYTORCH_ALLOC_CONF.",
            show_default="expandable for a Job, PYTORCH_ALLOC_CONF for a script",
        ),
    ] = None,
    parallel: Parallel = NO_PARALLEL,
    ranks: Ranks = 1,
    measure: Annotated[
        bool, typer.Option("--measure", help="Also run a few steps on this machine, compare, and save the difference.")
    ] = False,
    snapshot: Annotated[
        Optional[Path],  # noqa: UP045  typer on Python 3.10 reads it at run time
        typer.Option(
            metavar="FILE",
            help="Also write the timeline as a memory snapshot, for pytorch.org/memory_viz.",
            show_default=False,
        ),
    ] = None,
    trace: Annotated[
        Optional[Path],  # noqa: UP045  typer on Python 3.10 reads it at run time
        typer.Option(
            metavar="FILE", help="Also write the timeline as trace events, for Perfetto and Chrome.", show_default=False
        ),
    ] = None,
    yes: Yes = False,
    max_seconds: MaxSeconds = 120,
    json: Json = False,
) -> None:
    """Predict the memory of a training step on a GPU, before it runs and without that GPU.

    Traces the step without computing or allocating anything and replays torch's allocator. Reports whether the step
    fits, the composition of its peak, and a suggestion. A script is executed up to its third optimizer step.
    """
    from ..prediction import TimelineFiles  # noqa: PLC0415
    from ..settings import Settings, environment_allocator, parse_sample_size  # noqa: PLC0415

    reference, *arguments = job
    files = TimelineFiles(snapshot, trace)
    if is_script(reference):
        reject_job_flags(
            {
                "--size": size != "0",
                "--micro-batch": micro_batch is not None,
                "--precision": precision.value != "fp32",
                "--memory-format": memory_format.value != "contiguous",
                "--checkpointing": checkpointing != "none",
                "--optimizer": optimizer.value != "given",
                "--parallel": parallel.value != "none",
                "--ranks": ranks != 1,
                "--measure": measure,
            }
        )
        script = Script(reference, tuple(arguments), batch, max_seconds, yes)
        _report_script(script, gpu, allocator or environment_allocator(), files, as_json=json)
        return
    reject_arguments(reference, arguments)
    if size == "0" and reference in built_in_jobs():
        size = BUILT_IN_SIZE
    settings = Settings(
        batch=16 if batch is None else batch,
        micro_batch=micro_batch,
        size=parse_sample_size(size),
        precision=precision.value,
        memory_format=memory_format.value,
        allocator=allocator or "expandable",
        checkpointing=checkpointing if checkpointing in CHECKPOINTING else tuple(checkpointing.split(",")),
        optimizer=optimizer.value,
        parallel=parallel.value,
        ranks=ranks,
    )
    _report(reference, settings, gpu, files, measure=measure, as_json=json)


def _report_script(script: Script, gpu: str | None, allocator: str, files: TimelineFiles, *, as_json: bool) -> None:
    from ..prediction import predict_trace  # noqa: PLC0415
    from ..report import PredictReport, emit  # noqa: PLC0415
    from ..script import capture_script  # noqa: PLC0415
    from ..settings import parse_allocator  # noqa: PLC0415

    parse_allocator(allocator)
    target = target_named(gpu)
    files.check(target)
    capture = capture_script(script.run_on(target, stacks=bool(files)), script.max_seconds)
    settings = replace(capture.loop.settings, allocator=allocator)
    files.write(capture.trace, settings, target)
    prediction = predict_trace(capture.trace, settings, target)
    emit(PredictReport(prediction, settings, target, loop=capture.loop, files=files), as_json=as_json)


def _report(
    reference: str, settings: Settings, gpu: str | None, files: TimelineFiles, *, measure: bool, as_json: bool
) -> None:
    from ..machine import find_target, this_device  # noqa: PLC0415
    from ..prediction import predict as predict_job  # noqa: PLC0415
    from ..report import PredictReport, emit  # noqa: PLC0415

    device, target = this_device(), target_named(gpu)
    is_local = target.name == find_target(device).name
    if measure and reference in built_in_jobs():
        raise UsageError(
            f"--measure runs a Job of a file, not {quote(reference)}", "write a file with a function that returns it"
        )
    if measure and settings.ranks > 1:
        raise UsageError("--measure runs a single rank", "omit --parallel and --ranks, or omit --measure")
    if measure and not is_local:
        raise UsageError(f"--measure runs on this machine, which has {device}, not {target.name}", "omit --gpu")
    prediction = predict_job(find_job(reference), settings, target, snapshot=files.snapshot, trace=files.trace)
    measured = _measure(reference, settings, prediction) if measure else None
    if is_local and not measure:
        prediction = _calibrate(prediction, device)
    emit(PredictReport(prediction, settings, target, measured, files=files), as_json=as_json)


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
