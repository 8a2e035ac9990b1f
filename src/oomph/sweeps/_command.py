"""Sweeps of foreign commands: a template with placeholders, and metrics that are found in the output."""

from __future__ import annotations

import math
import re
import shlex
import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..errors import UsageError, quote
from ..units import MIB
from ._grid import SEED, Cell, Grid
from ._queue import CellTask
from ._result import CellResult, Status
from .supervisor import LOG_FILE, CellOutcome, CellRequest, Limits, explain_cell

_FIRST_WORD = re.compile(r"[A-Za-z][\w@./-]*")
_NOT_FINITE = ", which is not finite"
_MAX_OUTPUT = 64 * MIB  # of a longer output, only its end is searched


@dataclass(frozen=True)
class Metric:
    """A number in the output of a command.

    Attributes:
        name: The name of its column: that of the pattern's named group, or the first word of the pattern.
        pattern: The regular expression; its named or only group is the number.
    """

    name: str
    pattern: str

    def find(self, output: str) -> str | None:
        """Return the text of the last match; None if there is no match."""
        last = None
        for match in re.finditer(self.pattern, output, re.MULTILINE):
            last = match
        if last is None:
            return None
        return str(next(iter(last.groupdict().values()), None) or last[1])


def parse_metrics(patterns: Sequence[str]) -> tuple[Metric, ...]:
    r"""Return the metrics of regular expressions such as `mAP50: ([0-9.]+)` or `AP=(?P<map50>\\S+)`.

    Raises:
        UsageError: An expression is invalid or has not one group, two have the same name, or there are none.
    """
    if not patterns:
        raise UsageError(
            "no metric is given", "add --metric with a regular expression, such as --metric 'mAP50: ([0-9.]+)'"
        )
    metrics = tuple(map(_parse_metric, patterns))
    names = [metric.name for metric in metrics]
    if repeated := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"two metrics are called {quote(repeated[0])}", "name them by their groups: (?P<name>[0-9.]+)")
    return metrics


def _parse_metric(pattern: str) -> Metric:
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise UsageError(
            f"the metric {quote(pattern)} is not a regular expression ({error})", "write one such as mAP50: ([0-9.]+)"
        ) from None
    if expression.groups != 1:
        raise UsageError(
            f"the metric {quote(pattern)} has {expression.groups} groups",
            "put parentheses around the number only, and write (?:…) for other groups",
        )
    word = _FIRST_WORD.search(pattern)
    name = next(iter(expression.groupindex), None) or (word[0].rstrip(".-/") if word else "metric")
    return Metric(name, pattern)


@dataclass(frozen=True)
class CommandTemplate:
    """A command with placeholders such as `{batch}`; `{{` is a brace."""

    text: str

    def check(self, grid: Grid) -> None:
        """Check that the placeholders are the axes.

        Raises:
            UsageError: The template is empty or invalid, a placeholder is no axis, or an axis or seed isn't used.
        """
        used = {name for word in self._words() for name in _placeholders(word)}
        known = {*grid.names, SEED}
        if unknown := sorted(used - known):
            raise UsageError(
                f"the command uses {{{unknown[0]}}}, which has no values",
                f"add {_axis_flag(unknown[0])}…, or write one of {', '.join(f'{{{name}}}' for name in sorted(known))}",
            )
        if unused := [name for name in grid.names if name not in used]:
            raise UsageError(f"the command doesn't use {{{unused[0]}}}", f"add {{{unused[0]}}} to it")
        if len(grid.seeds) > 1 and SEED not in used:
            raise UsageError("the command doesn't use {seed}", "add --seed {seed} or the like to it, or remove --seeds")

    def argv(self, cell: Cell) -> tuple[str, ...]:
        """Return the command and arguments of a cell; a value never becomes several arguments."""
        return tuple(word.format(**cell.placeholders) for word in self._words())

    def _words(self) -> list[str]:
        try:
            words = shlex.split(self.text)
        except ValueError as error:
            raise UsageError(f"the command {quote(self.text)} can't be split ({error})", "close its quotes") from None
        if not words:
            raise UsageError("the command is empty", "write one such as 'python train.py --batch {batch}'")
        return words


def _axis_flag(name: str) -> str:
    return f"--{name} " if name in {"batch", "img"} else f"--set {name}="


def _placeholders(word: str) -> Iterator[str]:
    fix = "write placeholders as {batch}, and a brace as {{"
    try:
        fields = list(string.Formatter().parse(word))
    except ValueError as error:
        raise UsageError(f"{quote(word)} has an invalid placeholder ({error})", fix) from None
    for _, name, spec, conversion in fields:
        if name is None:
            continue
        if not name.isidentifier() or spec or conversion:
            raise UsageError(f"{quote(word)} has an invalid placeholder", fix)
        yield name


@dataclass(frozen=True)
class CommandResult:
    """Makes the result of a cell from the output of its command."""

    metrics: tuple[Metric, ...]
    limits: Limits

    def __call__(self, cell: Cell, folder: Path, outcome: CellOutcome) -> CellResult:
        """Return the result with the metrics, or with the reason why there are none."""
        explanation = explain_cell(folder, outcome, self.limits)
        status, why, fix = explanation.status, explanation.why, explanation.fix
        metrics: dict[str, float] = {}
        if status is Status.DONE:
            metrics, why = _read_metrics(self.metrics, folder / LOG_FILE)
            if why:
                status, fix = Status.FAILED, (_metric_fix(why, folder / LOG_FILE),)
        return CellResult(
            cell,
            status,
            metrics=metrics,
            host_peak=outcome.host_peak,
            gpu_peak=outcome.gpu_peak,
            seconds=outcome.seconds,
            why=why,
            fix=fix,
            exit_code=outcome.exit_code,
        )


def _metric_fix(why: str, log: Path) -> str:
    if why.endswith(_NOT_FINITE):
        return f"The training may have diverged; see {log}."
    return f"Compare the regular expression with {log}."


def _read_metrics(metrics: Sequence[Metric], log: Path) -> tuple[dict[str, float], str]:
    """Return the metrics in an output, and why one is missing."""
    with log.open("rb") as file:
        file.seek(max(log.stat().st_size - _MAX_OUTPUT, 0))
        output = file.read().decode(errors="replace")
    values: dict[str, float] = {}
    for metric in metrics:
        text = metric.find(output)
        if text is None:
            return {}, f"the metric {metric.name} was not found in its output"
        try:
            values[metric.name] = float(text)
        except ValueError:
            return {}, f"the metric {metric.name} is {quote(text)}, which is not a number"
        if not math.isfinite(values[metric.name]):
            return {}, f"the metric {metric.name} is {text}{_NOT_FINITE}"
    return values, ""


def command_tasks(
    template: CommandTemplate, cells: Sequence[Cell], metrics: tuple[Metric, ...], request: CellRequest
) -> tuple[CellTask, ...]:
    """Return the tasks that run a command once per cell; `request` has what all cells share."""
    finish = CommandResult(metrics, request.limits)
    return tuple(CellTask(cell, replace(request, argv=template.argv(cell)), finish) for cell in cells)
