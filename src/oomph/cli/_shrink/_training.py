"""Flags of the methods that train, and the folder of their runs."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from ...errors import MissingFile, UsageError
from .._devices import device_name
from ._options import check_imgsz

if TYPE_CHECKING:
    from ...detect import Hyperparameters, TrainConfig

RUNS = Path("runs/shrink")

TrainedWeights = Annotated[
    Optional[Path],  # noqa: UP045  typer on Python 3.10 reads it at run time
    typer.Option("--weights", metavar="FILE", help="The trained detector.", show_default=False),
]
TrainingData = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option("--data", metavar="YAML", help="The dataset to train on.", show_default=False),
]
Epochs = Annotated[int, typer.Option(help="Epochs of training.")]
Batch = Annotated[int, typer.Option("--batch", "--batch-size", help="Images per iteration.")]
Name = Annotated[str, typer.Option(help="Name of the run: a folder in runs/shrink.")]
Resume = Annotated[
    Optional[str],  # noqa: UP045  typer on Python 3.10 reads it at run time
    typer.Option(metavar="RUN", help="Resume an interrupted run by its folder or name.", show_default=False),
]
Budget = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(metavar="SIZE", help="Memory limit: of the GPU, or of the process on the CPU.", show_default="none"),
]
SettingsFile = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option("--settings", "--hyp", metavar="YAML", help="Other settings, as for oomph train.", show_default=False),
]


@dataclass(frozen=True)
class TrainingFlags:
    """Values of the flags of a method that trains."""

    data: Path
    epochs: int
    img: int
    batch: int
    device: str | None = None
    budget: str | None = None
    settings: Path | None = None
    hyp: Hyperparameters | None = None  # those that the settings file doesn't set

    def config(self, run_dir: Path) -> tuple[TrainConfig, tuple[str, ...]]:
        """Return the configuration of the training, and notes about settings without effect.

        Raises:
            MissingFile: the settings file doesn't exist.
            UsageError: a value is invalid.
        """
        from ...detect import TrainConfig, read_settings  # noqa: PLC0415
        from ...units import parse_size  # noqa: PLC0415

        check_imgsz(self.img)
        budget = None if self.budget is None else parse_size(self.budget)
        config = TrainConfig(self.data, run_dir, imgsz=self.img, batch=self.batch, epochs=self.epochs)
        config = replace(config, device=device_name(self.device), budget=budget, hyp=self.hyp or config.hyp)
        return (config, ()) if self.settings is None else read_settings(self.settings, config)


def missing_flag(flag: str) -> UsageError:
    """Return the error for a flag that a new run needs."""
    return UsageError(f"{flag} is missing", f"pass {flag}, or --resume with an interrupted run")


@contextlib.contextmanager
def resume_hint(method: str, run_dir: Path) -> Iterator[None]:
    """Print the command that resumes a run when Ctrl-C or SIGTERM stops it."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        if any(run_dir.glob("*.json")):
            command = f"oomph shrink {method} --resume {shlex.quote(str(run_dir))}"
            typer.echo(f"stopped; resume with: {command}", err=True)
        raise


def find_shrink_run(run: str, file: str) -> Path:
    """Return the folder of a run by its path or name; it holds a file of that name.

    Raises:
        MissingFile: there is no such run.
    """
    for folder in (Path(run), RUNS / run):
        if (folder / file).is_file():
            return folder
    raise MissingFile(f"there is no run '{run}' of this method to resume", "pass its folder or its name")
