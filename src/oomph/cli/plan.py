"""`oomph plan`."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from ..errors import CannotFit, UsageError, quote
from ..units import split_budget
from ._job_argument import (
    BUILT_IN_SIZE,
    ExplorerPage,
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
    from ..job import Job
    from ..machine import Target
    from ..planner import Plan
    from ..settings import Settings, Size

_GOALS = ("fastest", "largest-batch")
_PLAN_FILE = "plan.json"
_TILES = (1280, 640)  # pixels
Goal = enum.Enum("Goal", {name: name for name in _GOALS}, type=str)  # type: ignore[misc]


def plan(
    job: JobOrScript,
    batch: Annotated[
        Optional[int],  # noqa: UP045  typer on Python 3.10 reads it at run time
        typer.Option(
            help="Samples per optimizer step of a Job, or per batch of a script.", show_default="16, or the script's"
        ),
    ] = None,
    size: SampleSize = "0",
    gpu: Gpu = None,
    budget: Annotated[
        Optional[str],  # noqa: UP045  typer on Python 3.10 reads it at run time
        typer.Option(
            metavar="SIZE|gpu=SIZE,ram=SIZE",
            help="Memory of the device, as nvidia-smi shows it: 8GiB. With --dataset, also that of the host.",
            show_default="all of it",
        ),
    ] = None,
    precision: Annotated[Precision, typer.Option(help="Precision to compute in.")] = Precision("fp32"),
    parallel: Parallel = NO_PARALLEL,
    ranks: Ranks = 1,
    allow: Annotated[
        str,
        typer.Option(metavar="NAMES", help="What may change although it affects results: precision,optimizer,size."),
    ] = "",
    goal: Annotated[Goal, typer.Option(help="What to plan for.")] = Goal("fastest"),
    max_slowdown: Annotated[
        Optional[float],  # noqa: UP045  typer on Python 3.10 reads it at run time
        typer.Option(metavar="X", help="Fail if a step takes X times as long as without a limit of memory."),
    ] = None,
    dataset: Annotated[
        Optional[str],  # noqa: UP045  typer on Python 3.10 reads it at run time
        typer.Option(
            metavar="FILE:NAME",
            help="Function that returns the training set: plan for its largest samples, and plan its DataLoader.",
        ),
    ] = None,
    out: Annotated[
        Optional[Path],  # noqa: UP045  typer on Python 3.10 reads it at run time
        typer.Option("--out", "-o", metavar="FILE", help="Write the plan to a file, for oomph.Plan.load."),
    ] = None,
    html: Annotated[
        Optional[Path],  # noqa: UP045  typer on Python 3.10 reads it at run time
        typer.Option(metavar="FILE", help="Also write the plan explorer, a page with sliders.", show_default=False),
    ] = None,
    which_gpu: Annotated[
        bool, typer.Option("--which-gpu", help="Plan for every GPU of the catalog; name the smallest that works.")
    ] = False,
    yes: Yes = False,
    max_seconds: MaxSeconds = 120,
    json: Json = False,
) -> None:
    """Plan the fastest settings that fit into the memory of a GPU, before anything runs and without that GPU.

    Keeps the batch and the size. Changes what costs nothing, then splits the batch and recomputes modules where it
    costs the least time. Exits with 3 if nothing fits. A script is executed several times, up to its third optimizer
    step, and the plan ends with what to change in it.
    """
    from ..planner import read_allowed  # noqa: PLC0415
    from ..report import PlanReport, emit  # noqa: PLC0415
    from ..settings import Settings, parse_sample_size  # noqa: PLC0415

    reference, *arguments = job
    device_budget, host_budget = split_budget(budget)
    options = _PlanOptions(device_budget, goal.value, read_allowed(allow), max_slowdown, dataset, host_budget)
    if is_script(reference):
        reject_job_flags(
            {
                "--size": size != "0",
                "--precision": precision.value != "fp32",
                "--parallel": parallel.value != "none",
                "--ranks": ranks != 1,
                "--dataset": dataset is not None,
                "--budget ram=": host_budget is not None,
            }
        )
        if which_gpu:
            raise UsageError("--which-gpu is for a Job, not for a script", "name a GPU with --gpu")
        if html is not None:
            raise UsageError("--html is for a Job, not for a script", "write a function that returns an oomph.Job")
        script = Script(reference, tuple(arguments), batch, max_seconds, yes)
        _report_script(script, target_named(gpu), options, out, as_json=json)
        return
    reject_arguments(reference, arguments)
    if size == "0" and reference in built_in_jobs():
        size = BUILT_IN_SIZE
    settings = Settings(
        batch=16 if batch is None else batch,
        size=parse_sample_size(size),
        precision=precision.value,
        allocator="default",
        parallel=parallel.value,
        ranks=ranks,
    )
    if which_gpu:
        given = {
            "--gpu": gpu,
            "--budget": budget,
            "--max-slowdown": max_slowdown,
            "--dataset": dataset,
            "--out": out,
            "--html": html,
        }
        _reject_beside_which_gpu(*(flag for flag, value in given.items() if value is not None))
        _report_gpus(reference, settings, options.allow, as_json=json)
        return
    target = target_named(gpu)
    page = None if html is None else ExplorerPage(html, reference, target, device_budget, quiet=json)
    result = _make_plan_and_page(reference, settings, target, options, page, quiet=json)
    if out is not None:
        _save(result, out)
    emit(PlanReport(result, reference, target, page=None if html is None else str(html)), as_json=json)


@dataclass(frozen=True)
class _PlanOptions:
    """Options of a plan beside the settings."""

    budget: str | None
    goal: str
    allow: tuple[str, ...]
    max_slowdown: float | None
    dataset: str | None
    host_budget: str | None


def _report_script(script: Script, target: Target, options: _PlanOptions, out: Path | None, *, as_json: bool) -> None:
    from ..planner import plan_script  # noqa: PLC0415
    from ..report import ConsoleProgress, PlanReport, emit  # noqa: PLC0415

    file = str(out or _PLAN_FILE)
    run = script.run_on(target)
    with ConsoleProgress(quiet=as_json) as console:
        result = plan_script(
            run,
            target,
            budget=options.budget,
            goal=options.goal,
            allow=options.allow,
            max_slowdown=options.max_slowdown,
            max_seconds=script.max_seconds,
            progress=lambda done: console.on_progress(f"running {script.path} with other settings", done, None),
            file=file,
        )
    if out is not None:
        _save(result, out)
    emit(PlanReport(result, script.path, target, None if out else file), as_json=as_json)


def _make_plan(reference: str, settings: Settings, target: Target, options: _PlanOptions, *, quiet: bool) -> Plan:
    from ..job import load_dataset  # noqa: PLC0415
    from ..planner import plan as make_plan  # noqa: PLC0415
    from ..report import ConsoleProgress  # noqa: PLC0415

    dataset = None if options.dataset is None else load_dataset(options.dataset)
    with ConsoleProgress(quiet=quiet) as console:

        def planned(job: Job, name: str, size: Size) -> Plan:
            return make_plan(
                job,
                replace(settings, size=size),
                target,
                budget=options.budget,
                goal=options.goal,
                allow=options.allow,
                max_slowdown=options.max_slowdown,
                progress=lambda done: console.on_progress(f"predicting settings of {name}", done, None),
                dataset=dataset,
                host_budget=options.host_budget,
            )

        try:
            return planned(find_job(reference), reference, settings.size)
        except CannotFit as error:
            ways_out = _ways_out(reference, settings.size, planned)
            raise CannotFit(error.why, "; ".join([*ways_out, error.fix])) from None


def _make_plan_and_page(
    reference: str,
    settings: Settings,
    target: Target,
    options: _PlanOptions,
    page: ExplorerPage | None,
    *,
    quiet: bool,
) -> Plan:
    """Return the plan and write its page, if there is one to write; also if nothing fits, to show what needs how much.

    Raises:
        CannotFit: nothing fits.
    """
    if page is None:
        return _make_plan(reference, settings, target, options, quiet=quiet)
    if options.dataset is not None:
        raise UsageError("--html has no --dataset, whose largest batch doesn't vary", "omit one of them")
    page.check()
    try:
        result = _make_plan(reference, settings, target, options, quiet=quiet)
    except CannotFit as error:
        page.write(settings, error)
        raise CannotFit(error.why, f"{error.fix}; {quote(str(page.path), 200)} shows what needs how much") from None
    page.write(settings, result)
    return result


def _ways_out(reference: str, size: Size, planned: Callable[[Job, str, Size], Plan]) -> Iterator[str]:
    """Yield what would fit instead of a detector: a smaller network, fewer channels, and tiles of large images."""
    cfg = built_in_jobs().get(reference)
    if cfg is None:
        return
    from ..detect import detection_job, pruned_networks, smaller_sizes  # noqa: PLC0415

    def fits(job: Job, name: str, side: Size) -> bool:
        try:
            planned(job, name, side)
        except CannotFit:
            return False
        return True

    for networks in (smaller_sizes(cfg), pruned_networks(cfg)):
        jobs = ((network, detection_job(network.cfg, widths=network.widths)) for network in networks)
        if network := next((network for network, job in jobs if fits(job, network.label, size)), None):
            yield network.advice
    sides = [side for side in _TILES if isinstance(size, int) and side < size]
    if side := next((side for side in sides if fits(find_job(reference), reference, side)), None):
        yield f"tiles of {side} pixels fit, at full resolution (`tiles: {side}` in the settings of `oomph train`)"


def _reject_beside_which_gpu(*flags: str) -> None:
    if flags:
        raise UsageError(f"--which-gpu plans for every GPU, so {flags[0]} has no meaning", f"omit {flags[0]}")


def _report_gpus(reference: str, settings: Settings, allow: tuple[str, ...], *, as_json: bool) -> None:
    from ..planner import next_smaller, which_gpus  # noqa: PLC0415
    from ..report import ConsoleProgress, WhichGpuReport, emit  # noqa: PLC0415

    job = find_job(reference)
    with ConsoleProgress(quiet=as_json) as console:
        options = which_gpus(
            job,
            settings,
            allow,
            lambda done, total: console.on_progress("planning for generations of GPUs", done, total),
        )
        advice = next_smaller(job, settings, options)
    emit(WhichGpuReport(reference, settings, options, advice), as_json=as_json)


def _save(plan: Plan, path: Path) -> None:
    try:
        plan.save(path)
    except OSError as error:
        raise UsageError(f"{quote(str(path))} can't be written ({error.strerror})", "name another file") from None
