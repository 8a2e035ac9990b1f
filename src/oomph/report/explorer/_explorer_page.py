"""The page of the plan explorer."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ... import __version__
from ...errors import CannotFit, UsageError, quote
from ...files import write_atomically
from ...planner import Plan, PredictionTable, TableChoice
from ...settings import Settings
from ...units import format_size
from .._plan import settings_text
from ..page import render_page, script_json
from ._table_data import table_data

_FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Explorer:
    """The plan explorer of a Job.

    Attributes:
        job: the Job, as on the command line.
        table: its predictions.
        requested: the requested settings.
        plan: the plan; None if nothing fits.
        problem: why nothing fits, if so.
    """

    job: str
    table: PredictionTable
    requested: Settings
    plan: Plan | None
    problem: CannotFit | None = None

    def html(self) -> str:
        """Return the page."""
        table = self.table
        return render_page(
            "explorer.html",
            folder=_FOLDER,
            scripts=((_FOLDER / "explorer.js").read_text(encoding="utf-8"),),
            job=self.job,
            plan_sentence=self._plan_sentence(),
            problem_sentence="" if self.problem is None else f"Nothing fits: {self.problem.why}.",
            problem_fix="" if self.problem is None else self.problem.fix,
            shared_sentence=_shared_sentence(table.settings),
            command_note=_command_note(table.settings),
            samples=table.samples.values,
            sizes=table.sizes.values,
            sizes_problem=table.sizes.problem,
            devices=[_device_choice(device.name, device.memory) for device in table.devices],
            precisions=_choices(table.precisions),
            checkpointings=_choices(table.checkpointings),
            optimizers=_choices(table.optimizers),
            method_sentence=_method_sentence(table),
            assumptions=table.assumptions,
            table=script_json(self._data()),
            version=__version__,
        )

    def save(self, path: Path) -> None:
        """Write the page to a file.

        Raises:
            UsageError: the file can't be written.
        """
        content = self.html().encode("utf-8", "replace")
        try:
            write_atomically(path, lambda file: file.write(content), fsync=False, parents=False)
        except OSError as error:
            raise UsageError(
                f"the page {quote(str(path))} can't be written ({error.strerror})", "name another file with --html"
            ) from None

    def _plan_sentence(self) -> str:
        if self.plan is None:
            return ""
        need, settings = self.plan.planned_need.device, self.plan.settings
        sizes = f"{format_size(need.value)} (up to {format_size(need.high)}) of {format_size(self.plan.budget)}"
        device = self.table.devices[0].name
        return f"The plan for {device}: batch {settings.batch}, {settings_text(settings)}, {sizes}."

    def _data(self) -> dict[str, Any]:
        table, device = self.table, self.table.devices[0].name
        start = self.requested if self.plan is None else self.plan.settings
        position = asdict(table.position(start, device))
        return {
            **table_data(table),
            "start": position,
            "plan": None if self.plan is None else position,
            "command": self._command_parts(),
        }

    def _command_parts(self) -> dict[str, Any]:
        """Return the parts of commands that don't depend on the position, quoted for a shell."""
        table, settings = self.table, self.table.settings
        fixed = {
            "--memory-format": settings.memory_format if settings.memory_format != "contiguous" else "",
            "--allocator": settings.allocator if settings.allocator != "expandable" else "",
        }
        return {
            "job": shlex.quote(self.job),
            "devices": {device.name: shlex.quote(device.name) for device in table.devices},
            "checkpointings": {choice.name: shlex.quote(_flag_value(choice)) for choice in table.checkpointings},
            "size": _size_flag(settings),
            "fixed": "".join(f" {flag} {shlex.quote(value)}" for flag, value in fixed.items() if value),
        }


def _flag_value(choice: TableChoice) -> str:
    return choice.value if isinstance(choice.value, str) else ",".join(choice.value)


def _size_flag(settings: Settings) -> str:
    """Return the flag of a size that can't be changed."""
    if isinstance(settings.size, tuple):
        return f" --size {settings.size[0]}x{settings.size[1]}"
    return f" --size {settings.size}" if settings.size else ""


def _choices(choices: Iterable[TableChoice]) -> list[Mapping[str, str]]:
    return [{"name": choice.name, "label": _label(choice), "problem": choice.problem} for choice in choices]


def _label(choice: TableChoice) -> str:
    return choice.name if isinstance(choice.value, str) else f"the {len(choice.value)} modules of the plan"


def _device_choice(name: str, memory: int) -> Mapping[str, str]:
    return {"name": name, "label": f"{name}, {format_size(memory)}", "problem": ""}


def _shared_sentence(settings: Settings) -> str:
    parts = [f"memory format {settings.memory_format}", f"allocator {settings.allocator}"]
    if settings.loss_chunks > 1:
        parts.append(f"the loss in {settings.loss_chunks} chunks")
    if settings.offload:
        parts.append("activations offloaded to the host")
    return f"All positions have {', '.join(parts)}."


def _command_note(settings: Settings) -> str:
    """Return what the command can't express, if anything."""
    if settings.loss_chunks == 1 and not settings.offload:
        return ""
    return "without the loss in chunks and offloading, which only oomph.Settings and the plan's file have"


def _method_sentence(table: PredictionTable) -> str:
    traced = (
        "For every precision and checkpointing, steps with few and many samples and up to three sizes were traced. "
    )
    if table.is_derived:
        others = "The steps in between run the same operations, so they were derived from these and replayed. "
    else:
        others = "The steps in between run other operations, so memory there is interpolated and less certain. "
    times = "Times are estimates for comparing settings: the real one is likely between half and twice as much. "
    return f"{traced}{others}{times}The command above predicts one position by a trace of its own."
