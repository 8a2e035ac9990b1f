"""`oomph train`."""

from __future__ import annotations

import contextlib
import logging
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from ..errors import MissingFile, UsageError
from ._options import Json
from ._runs import NEWEST, claimed_folder, find_run, unwritable

if TYPE_CHECKING:
    from ..detect import Order, OrderForm, Ranks

_EMBEDDED = Path("runs/embedded/data.yaml")  # made where no data is named
# What may differ when a run is resumed, because nothing that is learned depends on it without a yes.
_OF_THE_MACHINE = ("device", "threads", "budget", "allow")


def train(
    context: typer.Context,
    data: Annotated[
        Optional[Path],  # noqa: UP045  typer on Python 3.10 reads it at run time
        typer.Option(metavar="YAML", help="What to train on.", show_default="a small set made on the spot"),
    ] = None,
    weights: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="FILE", help="Weights to begin with.", show_default="fresh ones"),
    ] = None,
    cfg: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="n|s|m|l|x", help="Size of the network.", show_default="that of the weights, or s"),
    ] = None,
    img: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option("--img", "--imgsz", "--img-size", help="Side of the images.", show_default="640"),
    ] = None,
    batch: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(
            "--batch",
            "--batch-size",
            help="Images of an iteration; -1 for the largest that fits.",
            show_default="16",
        ),
    ] = None,
    epochs: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Passes over the training images.", show_default="100"),
    ] = None,
    device: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="cpu|N", help="Where to train.", show_default="the first GPU, or cpu"),
    ] = None,
    workers: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(
            help="Processes that load images, or threads where the CPU trains; 0 is the default too, never none.",
            show_default="as there are cores",
        ),
    ] = None,
    name: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Name of the run, a folder in runs/train.", show_default="exp"),
    ] = None,
    resume: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--resume",
            metavar="[RUN]",
            help="Go on with a run: the newest, or that of a folder or checkpoint. No other flag is needed.",
            show_default=False,
        ),
    ] = None,
    budget: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="SIZE",
            help="Memory that may be used: of the GPU, or of the process on the CPU.",
            show_default="all there is",
        ),
    ] = None,
    allow: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="precision,size",
            help="What may be changed where nothing else fits.",
            show_default="neither",
        ),
    ] = None,
    settings: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            "--settings",
            "--hyp",
            metavar="YAML",
            help="Everything else; a YOLOv5 hyp file will do.",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Train a YOLOv5 detector that doesn't run out of memory.

    Says before the first step what the run will need, splits the batch so that it fits, keeps the run alive when memory
    runs short, and goes on after any interruption with --resume. Without --data it trains on a small data set that it
    makes itself, in a few minutes on a laptop.
    """
    from ..detect import join_ranks, read_order, read_settings, write_embedded  # noqa: PLC0415
    from ..detect import train as run  # noqa: PLC0415
    from ..report import TrainReport, TrainTeller, emit  # noqa: PLC0415

    given: dict[str, Any] = {
        "data": data,
        "weights": None if weights == Path() else weights,  # YOLOv5's `--weights ''` asks for fresh ones
        "network": None if cfg is None else _size(cfg),
        "size": img,
        "batch": batch,
        "epochs": epochs,
        "device": device_name(device),
        "threads": workers,
        **_leave(budget, allow),
    }
    given = {flag: value for flag, value in given.items() if value is not None}

    def order(stack: contextlib.ExitStack) -> tuple[OrderForm, Sequence[str]]:
        words: Sequence[str] = ()
        if resume is not None:
            form, words = _again(read_order(find_run(resume, name)), given, settings)
        else:
            form = _anew(given, stack.enter_context(claimed_folder(name or "exp")))
            if settings is not None:
                form, words = read_settings(settings, form)
        if form.data == _EMBEDDED:
            try:
                write_embedded(_EMBEDDED.parent)
            except OSError as error:
                raise unwritable(_EMBEDDED.parent, error) from None
        return form, words

    with join_ranks(device_name(device)) as ranks, contextlib.ExitStack() as stack:
        if not ranks.is_first:
            logging.getLogger("oomph").setLevel(logging.ERROR)  # what all ranks do, the first one says
        form, words = ranks.once(
            lambda: order(stack)
        )  # else a rank would see the folder or the files that another is just making
        with TrainTeller(quiet=json or not ranks.is_first) as teller:
            for one in (*context.obj, *words):
                teller.said(one)
            with _telling_how_to_go_on(form.folder, ranks):
                done = run(form, teller, resume=resume is not None, ranks=ranks)
    if ranks.is_first:
        emit(TrainReport(done), as_json=json)


def complete(arguments: Sequence[str]) -> list[str]:
    """The arguments as typer takes them: --resume may stand alone, as in YOLOv5, and means the newest run then."""
    found = list(arguments)
    if found[:1] == ["train"] and "--resume" in found:
        after = found.index("--resume") + 1
        if after == len(found) or found[after].startswith("-"):
            found.insert(after, NEWEST)
    return found


def _leave(budget: str | None, allow: str | None) -> dict[str, Any]:
    """What may be used and changed."""
    from ..planner import read_allowed  # noqa: PLC0415
    from ..units import parse_size  # noqa: PLC0415

    return {
        "budget": None if budget is None else parse_size(budget),
        "allow": None if allow is None else read_allowed(allow),
    }


def _anew(given: dict[str, Any], folder: Path) -> OrderForm:
    """The order of a new run."""
    from ..detect import OrderForm, read_weights  # noqa: PLC0415

    weights = given.get("weights")
    if weights is not None and not weights.exists():
        raise MissingFile(f"there is no file {str(weights)!r}", "download it first: oomph fetches nothing")
    form = OrderForm(data=given["data"], folder=folder) if "data" in given else _embedded(folder)
    if weights is not None:  # read now, so that a wrong file is told before anything is planned
        form = replace(form, network=read_weights(weights).size)
    return replace(form, **given, spare=None if "budget" in given else form.spare)


def _embedded(folder: Path) -> OrderForm:
    from ..detect import EmbeddedRun, OrderForm  # noqa: PLC0415
    from ..units import parse_size  # noqa: PLC0415

    course = EmbeddedRun()
    return OrderForm(
        data=_EMBEDDED,
        folder=folder,
        network=course.network,
        size=course.size,
        batch=course.batch,
        epochs=course.epochs,
        recipe=course.recipe,
        spare=parse_size(course.spare),
        every=course.every,
    )


def _again(order: Order, given: dict[str, Any], settings: Path | None) -> tuple[OrderForm, tuple[str, ...]]:
    """The order of a run that is resumed, and what is told about flags that were given beside.

    Raises:
        UsageError: a flag asks for something that the run was not begun with and that would change what is learned.
    """
    from ..detect import FLAGS, read_settings  # noqa: PLC0415

    words = [f"resuming {order.asked.folder}"]
    changes: dict[str, Any] = {}
    for field, value in given.items():
        before, wanted = getattr(order.asked, field), value.absolute() if isinstance(value, Path) else value
        if wanted == before:
            continue
        if field not in _OF_THE_MACHINE:
            raise UsageError(
                f"{FLAGS[field]} is {value}, and the run in {order.asked.folder} was begun with {before}",
                "leave it out, or begin a new run",
            )
        changes[field] = value
        words.append(f"{FLAGS[field]} is {value} from now on, and was {before}")
    if settings is not None and read_settings(settings, order.asked)[0] != order.asked:
        raise UsageError(f"{settings} has other settings than the run", "leave it out, or begin a new run")
    spare = None if "budget" in changes else order.settled.spare
    return replace(order.settled, **changes, spare=spare), tuple(words)


@contextlib.contextmanager
def _telling_how_to_go_on(folder: Path, ranks: Ranks) -> Iterator[None]:
    """Say the command that goes on with a run that was stopped by Ctrl-C or SIGTERM, and saved."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        if ranks.is_first and any((folder / "weights").glob("state*.pt")):
            begin = f"torchrun --nproc-per-node {ranks.ranks} -m oomph" if ranks.are_several else "oomph"
            typer.echo(f"stopped; go on with: {begin} train --resume {shlex.quote(str(folder))}", err=True)
        raise


def _size(cfg: str) -> str:
    """YOLOv5 names its networks by files: models/yolov5s.yaml."""
    return Path(cfg).stem.lower().removeprefix("yolov5")


def device_name(text: str | None) -> str | None:
    """The device as torch calls it: YOLOv5 counts GPUs."""
    if text is None or text == "cpu":
        return text
    if text.isdigit():
        return f"cuda:{text}"
    if text == "cuda" or (text.startswith("cuda:") and text[5:].isdigit()):
        return text
    several = text.replace("cuda:", "").split(",")
    if len(several) > 1 and all(one.strip().isdigit() for one in several):
        ours = ",".join(one.strip() for one in several)
        raise UsageError(
            f"'{text}' are {len(several)} GPUs, and a process trains on one",
            f"write `CUDA_VISIBLE_DEVICES={ours} torchrun --nproc-per-node {len(several)} -m oomph train …` with the "
            "other flags and without --device",
        )
    raise UsageError(f"{text!r} is no device", "write cpu or the number of a GPU; for several use torchrun")
