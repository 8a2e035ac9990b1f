"""Objects of the Python API as the reports of the commands show them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from ...monitor import Explanation, Record, explain_record
from ...planner import Plan
from ...prediction import Prediction
from ...units import count_of, format_number, format_size
from .._explain import ExplainReport
from .._plan import PlanReport
from .._predict import assumption_lines, estimates_table, peak_parts
from .._table import table
from .._text import body_line, duration, printable

if TYPE_CHECKING:
    from ...recovery import StepReport


def render_prediction(prediction: Prediction) -> RenderableType:
    """Render the estimates and the composition of the peak."""
    return Group(
        Text(f"A training step on {printable(prediction.target)}", "bold"),
        Text(),
        estimates_table(prediction, plain=False),
        *peak_parts(prediction.peak, plain=False),
        Text(),
        *assumption_lines(prediction),
    )


def render_plan(plan: Plan) -> RenderableType:
    """Render the planned settings, the changes and the alternatives."""
    return PlanReport(plan).render(plain=False)


def render_explanation(explanation: Explanation) -> RenderableType:
    """Render what happened, why, and what to do."""
    return ExplainReport(explanation).render(plain=False)


def render_record(record: Record) -> RenderableType:
    """Render which run it is of, and its diagnosis."""
    program = printable(str(record.header.get("program", "an unknown program")))
    host = printable(str(record.header.get("host", "an unknown machine")))
    return Group(Text(f"Record of {program} on {host}"), render_explanation(explain_record(record)))


def render_step_report(report: StepReport) -> RenderableType:
    """Render the result of a guarded step; reading its loss waits for the device."""
    rows = table("", "", plain=False)
    for name, value in _step_fields(report):
        rows.add_row(Text(name, "bold"), printable(value))
    return Group(_step_verdict(report), rows, *(body_line(str(fallback)) for fallback in report.fallbacks))


def _step_verdict(report: StepReport) -> Text:
    retries = f"after {count_of(report.retries, 'retry', 'retries')}"
    if report.skipped:
        return Text("The gradient scaler skipped the update of this step.", "bold yellow")
    if report.retries:
        return Text(f"The step was completed {retries} because memory ran out.", "bold yellow")
    return Text("The step was completed.", "bold green")


def _step_fields(report: StepReport) -> Iterator[tuple[str, str]]:
    yield "loss", _number(report.loss)
    if report.grad_norm is not None:
        yield "gradient norm", _number(report.grad_norm)
    if report.learning_rates:
        yield "learning rate", ", ".join(map(_number, report.learning_rates))
    for name, value in report.metrics.items():
        yield name, _number(value)
    yield "micro-batches", str(report.micro_batches)
    if report.peak_bytes is not None:
        yield "peak memory", format_size(report.peak_bytes)
    yield "time", duration(report.seconds)
    if not report.updated:
        yield "optimizer", "not updated: gradients are accumulated"


def _number(value: Any) -> str:
    """Return a number or a tensor of one element as text; a larger tensor by its shape."""
    shape = getattr(value, "shape", ())
    if len(shape) == 0 or value.numel() == 1:
        return format_number(float(value))
    return f"tensor of {' × '.join(map(str, shape))}"
