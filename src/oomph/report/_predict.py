"""Report of `oomph predict`: whether the job fits, the estimates, the composition of the peak, and a suggestion."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from .. import document
from ..display import HtmlRepr
from ..machine import Target
from ..monitor import Measurement
from ..planner import estimate_micro_batch
from ..prediction import Estimate, Peak, Prediction, TimelineFiles
from ..script import TrainingLoop
from ..settings import Settings
from ..units import format_size
from ._table import table
from ._text import duration

_BAR_WIDTH = 40
_MAX_OWNERS = 10
_KIND_DESCRIPTIONS = {
    "saved activation": "saved by forward for backward",
    "parameter": "weights",
    "buffer": "buffers",
    "gradient": "gradients of the weights",
    "optimizer state": "state of the optimizer",
    "input": "the batch",
    "temporary": "intermediate results",
    "workspace": "scratch memory of libraries",
}


@dataclass(frozen=True)
class PredictReport(HtmlRepr):
    """Report of a prediction, and of a measurement, a script's training loop or timeline files if there are some."""

    prediction: Prediction
    settings: Settings
    target: Target
    measured: Measurement | None = None
    loop: TrainingLoop | None = None
    files: TimelineFiles = field(default_factory=TimelineFiles)

    @property
    def fits(self) -> bool:
        """True if the step runs at full speed in the target's memory."""
        return self.prediction.device.high <= self.target.memory

    def document(self) -> dict[str, Any]:
        """Return the report as a JSON document."""
        return {
            "oomph": "prediction",
            "version": 1,
            "fits": self.fits,
            "settings": document.encode(self.settings),
            "target": document.encode(self.target),
            "suggestion": suggestion(self.prediction, self.settings, self.target),
            "prediction": document.encode(self.prediction),
            "measured": document.encode(self.measured),
            "script": document.encode(self.loop),
            "files": [str(path) for path in self.files.paths],
        }

    def render(self, *, plain: bool) -> RenderableType:
        """Return the report for a terminal or a pipe."""
        prediction = self.prediction
        return Group(
            self._verdict(),
            *self._captured(),
            Text(),
            estimates_table(prediction, plain=plain),
            *self._comparison(plain=plain),
            *peak_parts(prediction.peak, plain=plain),
            Text(),
            Text(suggestion(prediction, self.settings, self.target), "bold"),
            *assumption_lines(prediction),
            *self._written(),
        )

    def _written(self) -> Iterator[RenderableType]:
        if self.files.snapshot is not None:
            yield Text(f"Memory snapshot: {self.files.snapshot}, to open at pytorch.org/memory_viz")
        if self.files.trace is not None:
            yield Text(f"Trace: {self.files.trace}, to open at ui.perfetto.dev")

    def _captured(self) -> Iterator[RenderableType]:
        if self.loop is not None:
            yield Text(f"Captured: {self.loop.describe()}.")

    def _verdict(self) -> Text:
        need, memory, name = self.prediction.device, self.target.memory, self.target.name
        spare = memory - need.value
        if self.fits:
            return Text(f"Fits on {name}, with {format_size(spare)} of {format_size(memory)} to spare.", "bold green")
        if need.value <= memory:
            return Text(
                f"Barely fits on {name}: {format_size(spare)} of {format_size(memory)} to spare, "
                "less than the prediction's uncertainty.",
                "bold yellow",
            )
        if self.prediction.needed.value + self.target.outside[1] <= memory:
            return Text(f"Runs on {name}, but not at full speed: memory is too tight.", "bold yellow")
        return Text(f"Does not fit on {name}: {format_size(-spare)} too much.", "bold red")

    def _comparison(self, *, plain: bool) -> Iterator[RenderableType]:
        if self.measured is None:
            return
        measured, prediction = self.measured, self.prediction
        rows = table("", ">predicted", ">measured", ">error", plain=plain)
        for name, estimate, value in (
            ("allocated", prediction.allocated, measured.allocated),
            ("reserved", prediction.reserved, measured.reserved),
            ("host", prediction.host, measured.host),
        ):
            error = f"{100 * (estimate.value / value - 1):+.1f} %"
            rows.add_row(Text(name, "bold"), format_size(estimate.value), format_size(value), error)
        predicted_seconds = prediction.seconds.value
        error = f"{100 * (predicted_seconds / measured.seconds - 1):+.0f} %"
        rows.add_row(Text("step", "bold"), duration(predicted_seconds), duration(measured.seconds), error)
        yield Text()
        yield Text(f"Measured on {measured.device} with {measured.software}, and saved for later predictions:", "bold")
        yield rows


def estimates_table(prediction: Prediction, *, plain: bool) -> RenderableType:
    """Return the table of all estimates."""
    rows = table("", ">low", ">predicted", ">high", "", plain=plain)
    if prediction.target == "cpu":
        _add_sizes(rows, "growth", prediction.allocated, "RSS growth of training, after the imports")
        _add_sizes(rows, "process", prediction.host, "RSS of the whole process")
    else:
        _add_sizes(rows, "allocated", prediction.allocated, "torch.cuda.max_memory_allocated()")
        _add_sizes(rows, "reserved", prediction.reserved, "torch.cuda.max_memory_reserved(), without a cap")
        _add_sizes(rows, "needed", prediction.needed, "smallest allocator cap under which it runs at all")
        _add_sizes(rows, "full_speed", prediction.full_speed, "allocator cap at which it runs at full speed")
        _add_sizes(rows, "device", prediction.device, "full_speed and the CUDA context, as nvidia-smi shows it")
        _add_sizes(rows, "host", prediction.host, "RSS of the process")
    seconds = prediction.seconds
    durations = (duration(value) for value in (seconds.low, seconds.value, seconds.high))
    rows.add_row(Text("step", "bold"), *durations, Text("rough estimate, for comparing settings", "dim"))
    return rows


def peak_parts(peak: Peak, *, plain: bool) -> Iterator[RenderableType]:
    """Yield the composition of the peak, by kind of memory and by module."""
    yield Text()
    yield Text(f"The peak is in {_peak_moment(peak)}. Memory at the peak:", "bold")
    yield _kinds(peak, plain=plain)
    yield Text()
    yield Text("Largest owners:", "bold")
    yield _owners(peak, plain=plain)


def assumption_lines(prediction: Prediction) -> Iterator[RenderableType]:
    """Yield what the prediction assumed."""
    return (Text(f"Assumed: {assumption}.", "dim") for assumption in prediction.assumptions)


def _kinds(peak: Peak, *, plain: bool) -> RenderableType:
    rows = table("", ">", "", plain=plain)
    total = sum(size for _, size in peak.kinds) or 1
    for kind, size in peak.kinds:
        bar = "█" * round(_BAR_WIDTH * size / total)
        rows.add_row(kind, format_size(size), Text(bar if not plain else f"{100 * size / total:.0f} %", "cyan"))
    return rows


def _owners(peak: Peak, *, plain: bool) -> RenderableType:
    rows = table("", ">", "", plain=plain)
    for owner in peak.owners[:_MAX_OWNERS]:
        description = _KIND_DESCRIPTIONS.get(owner.kind, owner.kind)
        name = f"{owner.module} ({owner.module_class})" if owner.module_class else owner.module
        rows.add_row(name or "(outside the model)", format_size(owner.size), description)
    return rows


def _add_sizes(rows: Table, name: str, estimate: Estimate, description: str) -> None:
    sizes = (format_size(value) for value in (estimate.low, estimate.value, estimate.high))
    rows.add_row(Text(name, "bold"), *sizes, Text(description, "dim"))


def _peak_moment(peak: Peak) -> str:
    step = "the first step" if peak.step == 0 else "every step"
    module = f" of {peak.module}" if peak.module else ""
    return f"the {peak.phase} phase of {step}, at {peak.op}{module}"


def suggestion(prediction: Prediction, settings: Settings, target: Target) -> str:
    """Return one sentence: the micro-batch that fits, or what would save the most memory."""
    estimate = estimate_micro_batch(prediction, settings, target.memory)
    if estimate is None:
        phase = f"The {prediction.peak.phase} phase sets the peak"
        if prediction.device.high <= target.memory:
            return f"{phase}: larger micro-batches may fit too."
        return f"{phase}: smaller micro-batches don't help. {_use_less(prediction, settings)}"
    micro_batch, samples = settings.micro_batch or settings.batch, estimate.samples
    if samples > micro_batch:
        return f"Micro-batches of about {samples} samples would still fit."
    if samples == micro_batch:
        return "It just fits."
    if samples >= 1:
        return (
            f"Split the batch: micro-batches of {samples} samples (micro_batch={samples}) need about "
            f"{format_size(estimate.device_bytes)}. The optimizer still sees the whole batch; "
            "BatchNorm sees the micro-batches."
        )
    return f"Not even one sample fits. {_use_less(prediction, settings)}"


def _use_less(prediction: Prediction, settings: Settings) -> str:
    kinds = dict(prediction.peak.kinds)
    if settings.precision in {"fp32", "tf32"}:
        return "Compute in half precision (amp-bf16, or amp-fp16 before Ampere)."
    if kinds.get("optimizer state", 0) > kinds.get("saved activation", 0):
        return "The optimizer's state is the largest part: use an optimizer with less state."
    return "Use smaller inputs or a smaller model."
