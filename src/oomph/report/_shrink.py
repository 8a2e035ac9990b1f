"""Report of `oomph shrink`: a model before and after, side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from .. import document
from ..display import HtmlRepr
from ..units import count_of, format_size
from ._table import table
from ._text import printable

if TYPE_CHECKING:
    from ..shrink import CompareResult, Latency, OutputDifference, ShrinkResult, VariantReport

_SAME = 0.0005  # a relative difference that rounds to 0.0 %
_SLOWER = 1.01  # a ratio that is more than noise


@dataclass(frozen=True)
class ShrinkReport(HtmlRepr):
    """Measurements of the variants of a model."""

    result: ShrinkResult

    def document(self) -> dict[str, Any]:
        """Return all measurements as JSON values."""
        return {"oomph": "shrink", "version": 1, **document.encode(self.result)}

    def render(self, *, plain: bool) -> RenderableType:
        """Return a column per variant, with differences from the first, and what the numbers are."""
        return Group(variant_table(self.result.variants, plain=plain), Text(), *map(Text, self._lines()))

    def _lines(self) -> Iterator[str]:
        result = self.result
        for difference in result.differences:
            yield _difference_line(difference, result.variants[0].name)
        if result.float_layers:
            yield f"not quantized: {', '.join(result.float_layers)}"
        yield from _slower_lines(result)
        yield from measurement_lines(result)
        if result.variants[-1].file:
            yield f"written: {result.variants[-1].file}"


def variant_table(variants: Sequence[VariantReport], *, plain: bool) -> Table:
    """Return a table with a column per variant, and with differences from the first."""
    first = variants[0]
    rows = table("", *(f">{printable(variant.name)}" for variant in variants), plain=plain)
    for name, text, value in _rows(variants):
        cells = [text(first), *(f"{text(item)} {value(first, item)}".rstrip() for item in variants[1:])]
        rows.add_row(Text(name, "bold"), *cells)
    return rows


def measurement_lines(result: ShrinkResult | CompareResult) -> Iterator[str]:
    """Yield what the numbers of a table are."""
    latency = result.variants[0].latency
    if training := next((variant.training for variant in result.variants if variant.training), None):
        images = count_of(training.batch, "image")
        yield f"Training memory: predicted peak of torch's allocations in a step with {images} on {training.target}."
    threads = count_of(latency.threads, "thread")
    yield (
        f"Image size {result.imgsz}. Latency: the network on one image, CPU, {threads}, median and quartiles of "
        f"{latency.runs} runs. Inference memory: peak RSS of a process that does this, libraries included. "
        f"Scores: {result.split} split."
    )


def _difference_line(difference: OutputDifference, before: str) -> str:
    images = count_of(difference.images, "image")
    return (
        f"{difference.variant}: raw outputs differ from {before} by at most {difference.largest:.2g}, "
        f"on average {difference.mean:.2g} ({images})"
    )


def _slower_lines(result: ShrinkResult) -> Iterator[str]:
    *others, after = result.variants
    before = min(
        [item for item in others if item.name.endswith("fp32")] or others, key=lambda item: item.latency.median
    )
    ratio = after.latency.median / before.latency.median
    if ratio > _SLOWER:
        yield f"{after.name} is slower than {before.name} on this CPU: {ratio:.2f} times the latency"


def _format_latency(latency: Latency) -> str:
    median, lower, upper = (f"{seconds * 1000:.3g}" for seconds in (latency.median, latency.lower, latency.upper))
    return f"{median} ms [{lower}, {upper}]"


def _percent(before: float, after: float) -> str:
    change = after / before - 1
    if abs(change) < _SAME:
        return "(same)"
    decimals = 1 if abs(change) < 0.01 else 0  # noqa: PLR2004  below one percent
    return f"({change:+.{decimals}%})".replace("-", "−").replace("%", " %")  # noqa: RUF001  a minus sign


def _points(before: float, after: float) -> str:
    change = f"{after - before:+.3f}"
    return "(same)" if float(change) == 0 else f"({change})".replace("-", "−")  # noqa: RUF001  a minus sign


def _relative(value: Callable[[VariantReport], float]) -> Callable[[VariantReport, VariantReport], str]:
    return lambda before, after: _percent(value(before), value(after))


_Row = tuple[str, Callable[["VariantReport"], str], Callable[["VariantReport", "VariantReport"], str]]
_SIZE_ROWS: tuple[_Row, ...] = (
    ("parameters", lambda item: f"{item.parameters:,}", _relative(lambda item: item.parameters)),
    ("file", lambda item: format_size(item.file_bytes), _relative(lambda item: item.file_bytes)),
)
_INFERENCE_ROWS: tuple[_Row, ...] = (
    ("inference memory", lambda item: format_size(item.memory), _relative(lambda item: item.memory)),
    ("latency", lambda item: _format_latency(item.latency), _relative(lambda item: item.latency.median)),
)


def _rows(variants: Sequence[VariantReport]) -> Iterator[_Row]:
    yield from _SIZE_ROWS
    if any(variant.training for variant in variants):
        yield "training memory", _format_training, _training_change
    yield from _INFERENCE_ROWS
    yield from (_score_row(name) for name in variants[0].scores)


def _score_row(name: str) -> _Row:
    return name, lambda item: f"{item.scores[name]:.3f}", lambda old, new: _points(old.scores[name], new.scores[name])


def _format_training(variant: VariantReport) -> str:
    training = variant.training
    if training is None:
        return "–"  # noqa: RUF001  a dash
    measured = "" if training.measured is None else f", measured {format_size(training.measured)}"
    return format_size(training.predicted) + measured


def _training_change(before: VariantReport, after: VariantReport) -> str:
    if before.training is None or after.training is None:
        return ""
    return _percent(before.training.predicted, after.training.predicted)
