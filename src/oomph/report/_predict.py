"""The report of `oomph predict`: fits or not, the figures, what the peak is made of, what would help most."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from .. import document
from ..machine import Target
from ..monitor import Measurement
from ..prediction import Estimate, Owner, Prediction
from ..settings import Settings
from ..units import format_size
from ._table import table

_BAR = 40
_OWNERS = 10
_WORDS = {
    "saved activation": "kept from forward for backward",
    "parameter": "its weights",
    "buffer": "its buffers",
    "gradient": "gradients of its weights",
    "optimizer state": "what the optimizer remembers",
    "input": "the batch",
    "temporary": "in use for a moment",
    "workspace": "scratch memory of the libraries",
}


@dataclass(frozen=True)
class PredictReport:
    """A prediction for a target."""

    prediction: Prediction
    settings: Settings
    target: Target
    measured: Measurement | None = None

    @property
    def fits(self) -> bool:
        """Whether it runs at full speed in what the GPU has."""
        return self.prediction.device.high <= self.target.memory

    def document(self) -> dict[str, Any]:
        """Everything."""
        return {
            "oomph": "prediction",
            "version": 1,
            "fits": self.fits,
            "settings": document.encode(self.settings),
            "target": document.encode(self.target),
            "next": next_step(self.prediction, self.settings, self.target),
            "prediction": document.encode(self.prediction),
            "measured": document.encode(self.measured),
        }

    def render(self, *, plain: bool) -> RenderableType:
        """One screen."""
        made = self.prediction
        return Group(
            self._verdict(),
            Text(),
            self._figures(plain=plain),
            *self._comparison(plain=plain),
            Text(),
            Text(f"The peak is in {_where(made)}. It is made of:", "bold"),
            self._kinds(plain=plain),
            Text(),
            Text("The largest owners:", "bold"),
            self._owners(plain=plain),
            Text(),
            Text(next_step(made, self.settings, self.target), "bold"),
            *(Text(f"Assumed: {words}.", "dim") for words in made.assumptions),
        )

    def _verdict(self) -> Text:
        need, have = self.prediction.device, self.target.memory
        room = have - need.value
        if self.fits:
            words = f"Fits on {self.target.name}, with {format_size(room)} to spare of {format_size(have)}."
            return Text(words, "bold green")
        if need.value <= have:
            return Text(
                f"Barely fits on {self.target.name}: {format_size(room)} to spare of {format_size(have)}, "
                "less than the prediction's range.",
                "bold yellow",
            )
        if self.prediction.needed.value + self.target.outside[1] <= have:
            return Text(f"Runs on {self.target.name}, but not at full speed: it is that tight.", "bold yellow")
        return Text(f"Does not fit on {self.target.name}: {format_size(-room)} too much.", "bold red")

    def _figures(self, *, plain: bool) -> RenderableType:
        made = table("", ">low", ">predicted", ">high", "", plain=plain)
        if self.target.is_cpu:
            return self._on_cpu(made)
        rows: tuple[tuple[str, Estimate, str], ...] = (
            ("allocated", self.prediction.allocated, "what torch.cuda.max_memory_allocated() will say"),
            ("reserved", self.prediction.reserved, "what torch.cuda.max_memory_reserved() will say, uncapped"),
            ("needed", self.prediction.needed, "the smallest allocator cap under which it runs at all"),
            ("full_speed", self.prediction.full_speed, "a cap at which it runs at full speed"),
            ("device", self.prediction.device, "comfortable and the CUDA context, as nvidia-smi shows it"),
            ("host", self.prediction.host, "resident memory of the process"),
        )
        return self._filled(made, rows)

    def _on_cpu(self, made: Table) -> Table:
        grown = ("growth", self.prediction.allocated, "what training adds to the memory that the imports take")
        return self._filled(made, (grown, ("process", self.prediction.host, "resident memory of the whole process")))

    def _filled(self, made: Table, rows: tuple[tuple[str, Estimate, str], ...]) -> Table:
        for name, figure, words in rows:
            sizes = (format_size(value) for value in (figure.low, figure.value, figure.high))
            made.add_row(Text(name, "bold"), *sizes, Text(words, "dim"))
        time = self.prediction.seconds
        spans = (_duration(value) for value in (time.low, time.value, time.high))
        made.add_row(Text("step", "bold"), *spans, Text("a rough estimate, for comparing settings", "dim"))
        return made

    def _comparison(self, *, plain: bool) -> Iterator[RenderableType]:
        if self.measured is None:
            return
        found, made = self.measured, self.prediction
        rows = table("", ">predicted", ">measured", ">off by", plain=plain)
        for name, figure, value in (
            ("allocated", made.allocated, found.allocated),
            ("reserved", made.reserved, found.reserved),
            ("host", made.host, found.host),
        ):
            off = f"{100 * (figure.value / value - 1):+.1f} %"
            rows.add_row(Text(name, "bold"), format_size(figure.value), format_size(value), off)
        off = f"{100 * (made.seconds.value / found.seconds - 1):+.0f} %"
        rows.add_row(Text("step", "bold"), _duration(made.seconds.value), _duration(found.seconds), off)
        yield Text()
        yield Text(f"Measured on {found.device} with {found.software}, and remembered:", "bold")
        yield rows

    def _kinds(self, *, plain: bool) -> RenderableType:
        made = table("", ">", "", plain=plain)
        total = sum(size for _, size in self.prediction.peak.kinds) or 1
        for kind, size in self.prediction.peak.kinds:
            bar = "█" * round(_BAR * size / total)
            made.add_row(kind, format_size(size), Text(bar if not plain else f"{100 * size / total:.0f} %", "cyan"))
        return made

    def _owners(self, *, plain: bool) -> RenderableType:
        made = table("", ">", "", plain=plain)
        for owner in self.prediction.peak.owners[:_OWNERS]:
            made.add_row(owner.module or "(outside of the model)", format_size(owner.size), _sentence(owner))
        return made


def _duration(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"


def _sentence(owner: Owner) -> str:
    return _WORDS.get(owner.kind, owner.kind)


def _where(made: Prediction) -> str:
    peak = made.peak
    step = "the first step" if peak.step == 0 else "every step"
    place = f" of {peak.module}" if peak.module else ""
    return f"the {peak.phase} of {step}, at {peak.op}{place}"


def next_step(made: Prediction, settings: Settings, target: Target) -> str:
    """What would help most, or what room is left, in one sentence."""
    micro = settings.micro_batch or settings.batch
    scaling = sum(size for kind, size in made.peak.kinds if kind in {"saved activation", "temporary", "input"})
    fixed = made.device.high - scaling
    each = scaling / micro
    fitting = int((target.memory - fixed) / each) if each else 0
    if fitting >= micro:
        return f"Pieces of about {fitting} samples would still fit." if fitting > micro else "It fits just so."
    if fitting >= 1:
        return (
            f"Split the batch: pieces of {fitting} samples (micro_batch={fitting}) need about "
            f"{format_size(fixed + each * fitting)}. The optimizer still sees the whole batch; "
            "BatchNorm sees the pieces."
        )
    return "\n".join(_smaller(made, settings))


def _smaller(made: Prediction, settings: Settings) -> Iterator[str]:
    kinds = dict(made.peak.kinds)
    if settings.precision in {"fp32", "tf32"}:
        yield "Not even one sample fits: compute in half precision (amp-bf16, or amp-fp16 before Ampere)."
    elif kinds.get("optimizer state", 0) > kinds.get("saved activation", 0):
        yield "Not even one sample fits: the optimizer's state is the largest part; an optimizer with less would help."
    else:
        yield "Not even one sample fits: smaller inputs or a smaller model are needed."
