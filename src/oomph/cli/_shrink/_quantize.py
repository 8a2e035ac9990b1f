"""`oomph shrink quantize`."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Annotated

import typer

from .._options import Device, Json, Side
from .._runs import create_run_dir
from ._options import Out, check_imgsz
from ._training import (
    RUNS,
    Batch,
    Budget,
    Name,
    Resume,
    SettingsFile,
    TrainedWeights,
    TrainingData,
    TrainingFlags,
    find_shrink_run,
    missing_flag,
    resume_hint,
)


def quantize(
    weights: TrainedWeights = None,
    data: TrainingData = None,
    epochs: Annotated[
        int, typer.Option(min=0, help="Epochs of quantization-aware training; 0 calibrates without training.")
    ] = 0,
    img: Side = 640,
    batch: Batch = 16,
    device: Device = None,
    budget: Budget = None,
    settings: SettingsFile = None,
    out: Out = None,
    name: Name = "quantize",
    resume: Resume = None,
    json: Json = False,
) -> None:
    """Quantize a detector to int8, by calibration or after quantization-aware training.

    Goes on after an interruption with --resume and no other flag.
    """
    from ...report import ConsoleProgress, ShrinkReport, emit  # noqa: PLC0415
    from ...shrink import (  # noqa: PLC0415
        QAT_HYPERPARAMETERS,
        QUANTIZE_FILE,
        ExportRequest,
        QuantizeRequest,
        quantize_detector,
        shrink_onnx,
    )

    check_imgsz(img)
    with contextlib.ExitStack() as stack:
        notes: tuple[str, ...] = ()
        request: QuantizeRequest | ExportRequest
        if resume is not None:
            request = QUANTIZE_FILE.load(find_shrink_run(resume, QUANTIZE_FILE.name))
            notes = (f"resuming {request.config.run_dir}",)
        elif weights is None or data is None:
            raise missing_flag("--data" if data is None else "--weights")
        elif not epochs:
            request = ExportRequest(weights, data, img, int8=True, out=out)
        else:
            flags = TrainingFlags(data, epochs, img, batch, device, budget, settings, QAT_HYPERPARAMETERS)
            config, notes = flags.config(stack.enter_context(create_run_dir(name, RUNS)))
            request = QuantizeRequest(replace(config, weights=weights), out)
        progress = stack.enter_context(ConsoleProgress(quiet=json))
        for note in notes:
            progress.log(note)
        if isinstance(request, ExportRequest):
            result = replace(shrink_onnx(request, progress.log), method="quantize")
        else:
            stack.enter_context(resume_hint("quantize", request.config.run_dir))
            result = quantize_detector(request, progress)
    emit(ShrinkReport(result), as_json=json)
