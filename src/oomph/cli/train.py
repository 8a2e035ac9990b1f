"""`oomph train`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from ..errors import MissingFile, WrongCall
from ._options import Json

if TYPE_CHECKING:
    from ..detect import OrderForm

_RUNS = Path("runs/train")
# Flags of YOLOv5 that are not here, and why, or what to do instead.
YOLOV5 = {
    "--adam": "write `optimizer: AdamW` into the --settings file",
    "--bucket": "nothing is uploaded",
    "--cache": "images are decoded only as large as needed, which a cache in RAM seldom beats",
    "--cache-images": "images are decoded only as large as needed, which a cache in RAM seldom beats",
    "--cos-lr": "the learning rate falls in a straight line",
    "--entity": "nothing is logged to a service",
    "--evolve": "there is no search over hyperparameters",
    "--exist-ok": "a run never overwrites another; a second one of a name gets a number",
    "--freeze": "it is not on the command line yet; oomph.detect.freeze does it in Python",
    "--image-weights": "every image is seen once an epoch",
    "--label-smoothing": "labels are taken as they are",
    "--linear-lr": "the learning rate always falls in a straight line",
    "--multi-scale": "images keep their size, so that the memory that was planned is the memory that is used",
    "--noautoanchor": "anchors are fitted only where they match fewer than 98 % of the boxes",
    "--noplots": "plots cost next to nothing",
    "--nosave": "checkpoints are what a run goes on from",
    "--noval": "the best epoch is found by validating",
    "--optimizer": "write `optimizer: SGD` or `optimizer: AdamW` into the --settings file",
    "--patience": "runs end after 100 epochs without improvement",
    "--project": "runs are in runs/train; change into another folder first",
    "--quad": "batches are what they are called",
    "--rect": "validation is always rectangular, training never",
    "--save-period": "best.pt, last.pt and the state to resume from are kept",
    "--seed": "runs are drawn from seed 0",
    "--single-cls": "write a data.yaml with one name",
    "--sync-bn": "several GPUs are not trained on yet",
}


def train(
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
    img: Annotated[int, typer.Option("--img", "--imgsz", "--img-size", help="Side of the images.")] = 640,
    batch: Annotated[
        int, typer.Option("--batch", "--batch-size", help="Images of an iteration; -1 for the largest that fits.")
    ] = 16,
    epochs: Annotated[int, typer.Option(help="Passes over the training images.")] = 100,
    device: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(metavar="cpu|N", help="Where to train.", show_default="the first GPU, or cpu"),
    ] = None,
    workers: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Threads that load images.", show_default="one a core"),
    ] = None,
    name: Annotated[str, typer.Option(help="Name of the run, a folder in runs/train.")] = "exp",
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run of that name.")] = False,
    budget: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="SIZE",
            help="Memory that may be used: of the GPU, or of the process on the CPU.",
            show_default="all there is",
        ),
    ] = None,
    settings: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            "--settings",
            "--hyp",
            metavar="YAML",
            help="Hyperparameters; a YOLOv5 hyp file will do.",
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
    from ..detect import read_recipe  # noqa: PLC0415
    from ..detect import train as run  # noqa: PLC0415
    from ..report import TrainReport, TrainTeller, emit  # noqa: PLC0415
    from ..units import parse_size  # noqa: PLC0415

    folder = _folder(name, resume=resume)
    if data is None:
        form = _embedded(folder)
    else:
        form = replace(_form(data, folder, weights, cfg), size=img, batch=batch, epochs=epochs)
    if settings is not None:
        form = replace(form, recipe=read_recipe(settings))
    if budget is not None:
        form = replace(form, budget=parse_size(budget), spare=None)
    form = replace(form, device=device_name(device), threads=workers)
    with TrainTeller(quiet=json) as teller:
        done = run(form, teller, resume=resume)
    emit(TrainReport(done), as_json=json)


def _folder(name: str, *, resume: bool) -> Path:
    """The run's folder: a new one each time, unless it is resumed."""
    if not name or set(name) & set("/\\") or name in {".", ".."}:
        raise WrongCall(f"{name!r} can't be the name of a run", "write a plain name")
    if resume:
        found = sorted(_RUNS.glob(f"{name}*/weights/state.pt"), key=lambda path: path.stat().st_mtime)
        if not found:
            raise MissingFile(f"there is no run {name!r} to resume in {_RUNS}", "check the name, or leave --resume out")
        return found[-1].parent.parent
    folder, number = _RUNS / name, 2
    while folder.exists():
        folder, number = _RUNS / f"{name}{number}", number + 1
    return folder


def _embedded(folder: Path) -> OrderForm:
    from ..detect import EmbeddedRun, OrderForm, write_embedded  # noqa: PLC0415
    from ..units import parse_size  # noqa: PLC0415

    course = EmbeddedRun()
    return OrderForm(
        data=write_embedded(Path("runs/embedded")),
        folder=folder,
        network=course.network,
        size=course.size,
        batch=course.batch,
        epochs=course.epochs,
        recipe=course.recipe,
        spare=parse_size(course.spare),
        every=course.every,
    )


def _form(data: Path, folder: Path, weights: Path | None, cfg: str | None) -> OrderForm:
    from ..detect import OrderForm, read_weights  # noqa: PLC0415

    if weights is not None and not weights.exists():
        raise MissingFile(f"there is no file {str(weights)!r}", "download it first: oomph fetches nothing")
    size = read_weights(weights).size if weights is not None and cfg is None else _size(cfg or "s")
    return OrderForm(data=data, folder=folder, weights=weights, network=size)


def _size(cfg: str) -> str:
    """YOLOv5 names its networks by files: models/yolov5s.yaml."""
    return Path(cfg).stem.lower().removeprefix("yolov5")


def device_name(text: str | None) -> str | None:
    """The device as torch calls it: YOLOv5 counts GPUs."""
    if text is None or text == "cpu":
        return text
    if text.isdigit():
        return f"cuda:{text}"
    raise WrongCall(f"{text!r} is no device", "write cpu or the number of a GPU; for several use torchrun")
