"""Report of `oomph plan`: the settings, each change with what it brings, and the alternatives."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from .. import document
from ..display import HtmlRepr
from ..machine import Target
from ..planner import GpuOption, Plan, PlanChange
from ..settings import Settings
from ..units import count_of, format_size
from ._table import table
from ._text import duration

_MAX_MACHINES = 2


@dataclass(frozen=True)
class PlanReport(HtmlRepr):
    """Report of a plan on a target.

    Attributes:
        plan: the plan.
        job: the Job or the script.
        target: where it runs, if it is known beyond its name.
        file: where a script's steps will load the plan from, if that file was not written.
        page: where the plan explorer was written, if it was.
    """

    plan: Plan
    job: str = "The job"
    target: Target | None = None
    file: str | None = None
    page: str | None = None

    def document(self) -> dict[str, Any]:
        """Return the plan as a JSON document."""
        return self.plan.document()

    def render(self, *, plain: bool) -> RenderableType:
        """Return the report for a terminal or a pipe."""
        return Group(
            self._verdict(),
            *(Text(note) for note in self.plan.notes),
            Text(),
            self._comparison(plain=plain),
            *self._changes(plain=plain),
            *self._alternatives(plain=plain),
            *self._loader(),
            *self._in_use(),
            *(Text(f"Assumed: {assumption}.", "dim") for assumption in self.plan.planned_need.assumptions),
            *self._steps(),
            *([Text(f"The plan explorer is {self.page}: open it in a browser.")] if self.page else ()),
        )

    def _verdict(self) -> Text:
        plan, need = self.plan, self.plan.planned_need.device
        sizes = f"{format_size(need.value)} (up to {format_size(need.high)}) of {format_size(plan.budget)}"
        settings = f"batch {plan.settings.batch}, {settings_text(plan.settings)}"
        return Text(f"{self.job} fits on {plan.planned_need.target} with {settings}: {sizes}.", "bold green")

    def _in_use(self) -> Iterator[RenderableType]:
        if self.target is not None and self.target.in_use:
            size = format_size(self.target.in_use)
            yield Text(f"Other processes hold {size} of this GPU now, which the plan leaves to them.")

    def _comparison(self, *, plain: bool) -> RenderableType:
        plan = self.plan
        rows = table("", ">memory", ">up to", ">step", ">samples/s", plain=plain)
        for name, settings, need in (
            ("requested", plan.requested, plan.requested_need),
            ("planned", plan.settings, plan.planned_need),
        ):
            seconds = need.seconds.value
            rows.add_row(
                Text(name, "bold"),
                format_size(need.device.value),
                format_size(need.device.high),
                duration(seconds),
                f"{settings.batch / seconds:,.0f}",
            )
        return rows

    def _changes(self, *, plain: bool) -> Iterator[RenderableType]:
        changes = self.plan.changes
        if not changes:
            yield Text("Nothing has to change.")
            return
        yield Text()
        yield Text(f"Changes, because {changes[-1].why}:", "bold")
        rows = table("", ">allocated", ">step", "effect on results", plain=plain)
        for change in changes:
            rows.add_row(change.what, _bytes(change), _seconds(change), Text(change.cost, "dim"))
        yield rows

    def _alternatives(self, *, plain: bool) -> Iterator[RenderableType]:
        if not self.plan.alternatives:
            return
        yield Text()
        yield Text("Alternatives:", "bold")
        rows = table("settings", ">up to", ">samples/s", "", plain=plain)
        for other in self.plan.alternatives:
            speed = f"{other.settings.batch / other.seconds:,.0f}"
            rows.add_row(settings_text(other.settings), format_size(other.memory), speed, Text(other.why_not, "dim"))
        yield rows

    def _steps(self) -> Iterator[RenderableType]:
        if not self.plan.steps:
            return
        yield Text()
        yield Text("To carry it out:", "bold")
        for number, step in enumerate(self.plan.steps, 1):
            sentence, *code = step.splitlines()
            yield Text(f"{number}. {sentence}")
            # Never wrapped, so that it can be copied.
            yield from (Text(f"   {line}", "green", no_wrap=True, overflow="ignore") for line in code)
            if code and self.file is not None:
                yield Text(f"   The plan is not written yet: pass --out {self.file}.")

    def _loader(self) -> Iterator[RenderableType]:
        loader = self.plan.loader
        if loader is None:
            return
        prefetch = f", prefetch_factor={loader.prefetch}" if loader.workers else ""
        shared = f", {format_size(loader.shared)} of it in /dev/shm" if loader.shared else ""
        yield Text()
        yield Text(f"DataLoader: num_workers={loader.workers}{prefetch}, pin_memory={loader.pin_memory}", "bold")
        yield Text(
            f"It needs up to {format_size(loader.memory)} of host memory{shared}, beside "
            f"{format_size(loader.training)} for training. Limited by: {loader.why}."
        )


@dataclass(frozen=True)
class WhichGpuReport(HtmlRepr):
    """Report of `oomph plan --which-gpu`."""

    job: str
    settings: Settings
    options: tuple[GpuOption, ...]
    advice: str

    def document(self) -> dict[str, Any]:
        """Return the options as a JSON document."""
        return {
            "oomph": "gpus for a job",
            "version": 1,
            "job": self.job,
            "settings": document.encode(self.settings),
            "options": document.encode(self.options),
            "advice": self.advice,
        }

    def render(self, *, plain: bool) -> RenderableType:
        """Return the GPUs that work, the smallest one first."""
        works = [option for option in self.options if option.settings is not None]
        if not works:
            least = format_size(min(option.need for option in self.options))
            verdict = f"{self.job} runs on no GPU of the catalog: it may need up to {least}."
            return Group(Text(verdict, "bold red"), Text(self.advice))
        smallest = works[0]
        verdict = f"The smallest GPU for {self.job} is {smallest.gpu} ({format_size(smallest.memory)})."
        return Group(Text(verdict, "bold green"), Text(self.advice), Text(), _gpu_table(works, plain=plain))


def _gpu_table(works: list[GpuOption], *, plain: bool) -> RenderableType:
    rows = table("GPU", ">memory", ">needs up to", ">steps/s", "settings", "cloud machines", plain=plain)
    for option in works:
        assert option.settings is not None  # noqa: S101  these work
        assert option.seconds is not None  # noqa: S101
        machines = ", ".join(option.machines[:_MAX_MACHINES])
        rows.add_row(
            option.gpu,
            format_size(option.memory),
            format_size(option.need),
            f"{1 / option.seconds:.2f}",
            settings_text(option.settings),
            Text(f"{machines}, …" if len(option.machines) > _MAX_MACHINES else machines, "dim"),
        )
    return rows


def settings_text(settings: Settings) -> str:
    """Return the settings that differ between plans, in a few words."""
    sizes = settings.micro_batch_sizes
    split = "in one piece" if len(sizes) == 1 else f"in {len(sizes)} micro-batches of {sizes[0]}"
    parts = [settings.precision, split]
    if settings.ranks > 1:
        parts.append(f"{settings.parallel} on {settings.ranks} ranks")
    if settings.optimizer == "8bit":
        parts.append("8-bit states")
    if settings.loss_chunks > 1:
        parts.append(f"the loss in {settings.loss_chunks} chunks")
    checkpointing = settings.checkpointing
    if checkpointing != "none":
        what = f"the {checkpointing}" if isinstance(checkpointing, str) else count_of(len(checkpointing), "module")
        parts.append(f"{what} recomputed")
    if settings.offload:
        parts.append("activations offloaded")
    return ", ".join(parts)


def _bytes(change: PlanChange) -> str:
    if change.bytes is None:
        return ""
    return f"{'-' if change.bytes < 0 else '+'}{format_size(abs(change.bytes))}"


def _seconds(change: PlanChange) -> str:
    if change.seconds is None:
        return ""
    return f"{'-' if change.seconds < 0 else '+'}{duration(abs(change.seconds))}"
