"""`oomph train`."""

from __future__ import annotations

import contextlib
import logging
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from ..errors import MissingFile, UsageError
from ._devices import device_name
from ._options import Json, network_name
from ._runs import NEWEST, create_run_dir, find_run, not_writable
from ._signals import report_lost_rank

if TYPE_CHECKING:
    from ..detect import SavedConfig, TrainConfig
    from ..distributed import DistContext

_DEMO_DATA = Path("runs/demo/data.yaml")  # generated if no data is given
_PERMISSIONS = ("precision", "size")  # of those that the planner knows
# Settings that may change when a run is resumed: they don't affect the result, or need permission to.
_CHANGEABLE = ("device", "workers", "budget", "allow")


def train(
    context: typer.Context,
    data: Annotated[
        Optional[Path],  # noqa: UP045  typer on Python 3.10 reads it at run time
        typer.Option(metavar="YAML", help="The dataset.", show_default="a small generated one"),
    ] = None,
    weights: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="FILE", help="Initial weights.", show_default="fresh ones"),
    ] = None,
    cfg: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="n|s|m|l|x|NAME",
            help="The network: a size of YOLOv5, or its neck on mobilenet, shufflenet or depthwise.",
            show_default="that of the weights, or s",
        ),
    ] = None,
    img: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option("--img", "--imgsz", "--img-size", help="Image size in pixels.", show_default="640"),
    ] = None,
    batch: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(
            "--batch", "--batch-size", help="Images per iteration; -1 for the largest that fits.", show_default="16"
        ),
    ] = None,
    epochs: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Number of epochs.", show_default="100"),
    ] = None,
    device: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="cpu|N", help="Device to train on.", show_default="the first GPU, or cpu"),
    ] = None,
    workers: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(
            help="Processes that load images (threads when training on the CPU); 0 = auto.", show_default="auto"
        ),
    ] = None,
    name: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Name of the run: a folder in runs/train.", show_default="exp"),
    ] = None,
    resume: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--resume",
            metavar="[RUN]",
            help="Resume the newest run, or that of a folder or checkpoint. Needs no other flag.",
            show_default=False,
        ),
    ] = None,
    budget: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="SIZE", help="Memory limit: of the GPU, or of the process on the CPU.", show_default="none"
        ),
    ] = None,
    allow: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="precision,size", help="Changes that are allowed if nothing else fits.", show_default="none"
        ),
    ] = None,
    plan: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="FILE", help="Carry out a plan of `oomph plan -o FILE`.", show_default="plan now"),
    ] = None,
    settings: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            "--settings", "--hyp", metavar="YAML", help="All other settings; or a YOLOv5 hyp file.", show_default=False
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Train a YOLOv5 detector without running out of memory.

    Predicts the memory before the first step, splits batches into micro-batches that fit, retries steps that run out of
    memory, and resumes after any interruption with --resume. Without --data it generates a small dataset and trains on
    it in a few minutes on a laptop.
    """
    values = {
        "data": data,
        "weights": None if weights == Path() else weights,  # YOLOv5's `--weights ''` means fresh weights
        "cfg": None if cfg is None else network_name(cfg),
        "imgsz": img,
        "batch": batch,
        "epochs": epochs,
        "device": device_name(device),
        "workers": workers,
        "plan": plan,
        **_parse_limits(budget, allow),
    }
    given = {field: value for field, value in values.items() if value is not None}
    _train(_Request(given, name, resume, settings, tuple(context.obj)), as_json=json)


@dataclass(frozen=True)
class _Request:
    """The command line.

    Attributes:
        values: fields of TrainConfig that were given as flags.
        name, resume, settings: the flags.
        notes: messages about ignored flags.
    """

    values: dict[str, Any]
    name: str | None
    resume: str | None
    settings: Path | None
    notes: tuple[str, ...]


def _train(request: _Request, *, as_json: bool) -> None:
    from ..detect import train  # noqa: PLC0415
    from ..distributed import init_distributed  # noqa: PLC0415
    from ..report import ConsoleProgress, TrainReport, emit  # noqa: PLC0415

    with init_distributed(request.values.get("device")) as dist, contextlib.ExitStack() as stack:
        if not dist.is_main:
            logging.getLogger("oomph").setLevel(logging.ERROR)  # warnings come from rank 0 alone
        if dist.is_distributed:
            stack.enter_context(report_lost_rank())
        # On rank 0 alone: other ranks would see folders and files that are still being written.
        config, notes, is_resumed = dist.broadcast(lambda: _build_config(request, stack))
        quiet = as_json or not dist.is_main
        hint, report = _print_resume_hint(config.run_dir, dist), _write_report(config.run_dir, dist)
        with hint, report, ConsoleProgress(quiet=quiet) as progress:
            for note in (*request.notes, *notes):
                progress.log(note)
            result = train(config, progress, resume=is_resumed, dist=dist)
    if dist.is_main:
        emit(TrainReport(result), as_json=as_json)


def _parse_limits(budget: str | None, allow: str | None) -> dict[str, Any]:
    from ..planner import read_allowed  # noqa: PLC0415
    from ..units import parse_size  # noqa: PLC0415

    return {
        "budget": None if budget is None else parse_size(budget),
        "allow": None if allow is None else read_allowed(allow, _PERMISSIONS),
    }


def _build_config(request: _Request, stack: contextlib.ExitStack) -> tuple[TrainConfig, Sequence[str], bool]:
    """Return the config of a run, notes to print, and whether it is resumed; writes the demo dataset if it is used."""
    from ..detect import load_config, read_settings, write_demo_dataset  # noqa: PLC0415

    notes: Sequence[str] = ()
    run_dir = _run_to_resume(request)
    if run_dir is not None:
        config, notes = _resumed_config(load_config(run_dir), request.values, request.settings)
    else:
        config = _new_config(request.values, stack.enter_context(create_run_dir(request.name or "exp")))
        if request.settings is not None:
            config, notes = read_settings(request.settings, config)
    if config.data == _DEMO_DATA:
        try:
            write_demo_dataset(_DEMO_DATA.parent)
        except OSError as error:
            raise not_writable(_DEMO_DATA.parent, error) from None
    return config, notes, run_dir is not None


def _run_to_resume(request: _Request) -> Path | None:
    """Return the run that --resume selects; None for a new one.

    With --data and --name, --resume starts the run of that name if there is none: then one command starts a run, and
    continues it whenever a launcher starts it again.

    Raises:
        MissingFile: there is no such run.
    """
    if request.resume is None:
        return None
    try:
        return find_run(request.resume, request.name)
    except MissingFile:
        if request.resume == NEWEST and request.name is not None and "data" in request.values:
            return None
        raise


def _new_config(values: dict[str, Any], run_dir: Path) -> TrainConfig:
    from ..detect import TrainConfig, demo_config, read_weights  # noqa: PLC0415

    weights = values.get("weights")
    if weights is not None and not weights.exists():
        raise MissingFile(f"there is no file {str(weights)!r}", "download it first: oomph downloads nothing")
    config = TrainConfig(values["data"], run_dir) if "data" in values else demo_config(_DEMO_DATA, run_dir)
    if weights is not None:  # read now, so that an invalid file is reported before anything is planned
        content = read_weights(weights)
        content.check_network(values.get("cfg", content.size))
        config = replace(config, cfg=content.size, widths=content.widths)
    above_start = None if "budget" in values else config.budget_above_start
    return replace(config, **values, budget_above_start=above_start)


def _resumed_config(
    saved: SavedConfig, values: dict[str, Any], settings: Path | None
) -> tuple[TrainConfig, tuple[str, ...]]:
    """Return the config of a resumed run, and notes about changed flags.

    Raises:
        UsageError: a flag differs from the run's and would change the result.
    """
    from ..detect import FLAGS, read_settings  # noqa: PLC0415

    requested = saved.requested
    notes = [f"resuming {requested.run_dir}"]
    changes: dict[str, Any] = {}
    for field, value in values.items():
        before, now = getattr(requested, field), value.absolute() if isinstance(value, Path) else value
        if now == before:
            continue
        if field not in _CHANGEABLE:
            raise UsageError(
                f"{FLAGS[field]} is {value}, but the run in {requested.run_dir} was started with {before}",
                "remove it, or start a new run",
            )
        changes[field] = value
        notes.append(f"{FLAGS[field]} changed from {before} to {value}")
    if settings is not None and read_settings(settings, requested)[0] != requested:
        raise UsageError(f"the settings in {settings} differ from those of the run", "remove it, or start a new run")
    above_start = None if "budget" in changes else saved.resolved.budget_above_start
    return replace(saved.resolved, **changes, budget_above_start=above_start), tuple(notes)


@contextlib.contextmanager
def _print_resume_hint(run_dir: Path, dist: DistContext) -> Iterator[None]:
    """Print the command that resumes a run when Ctrl-C or SIGTERM stops it after a checkpoint."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        if dist.is_main and any((run_dir / "weights").glob("state*.pt")):
            launcher = f"torchrun --nproc-per-node {dist.world_size} -m oomph" if dist.is_distributed else "oomph"
            typer.echo(f"stopped; resume with: {launcher} train --resume {shlex.quote(str(run_dir))}", err=True)
        raise


@contextlib.contextmanager
def _write_report(run_dir: Path, dist: DistContext) -> Iterator[None]:
    """Write the page of a run at its end, also of one that was stopped or failed; a page never fails a run."""
    record = run_dir / "record.jsonl"
    before = _modified(record)
    try:
        yield
    finally:
        # A run that failed before its first step has written no Record.
        if dist.is_main and _modified(record) != before:
            _try_write_report(run_dir)


def _modified(file: Path) -> int | None:
    return file.stat().st_mtime_ns if file.is_file() else None


def _try_write_report(run_dir: Path) -> None:
    from ..report import write_run_page  # noqa: PLC0415

    try:
        page = write_run_page(run_dir)
    except Exception as error:  # noqa: BLE001  whatever happens to the page, the run is complete
        logging.getLogger("oomph").warning("The report was not written: %s", error)
    else:
        typer.echo(f"report: {page}", err=True)
