"""Training scripts as the argument of a command."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from ...errors import UsageError, quote

if TYPE_CHECKING:
    from ...machine import Target
    from ...script import ScriptRun

JobOrScript = Annotated[
    list[str],
    typer.Argument(
        metavar="JOB|SCRIPT [-- ARGS...]",
        help="What to train: path/to/file.py:function, which returns an oomph.Job; an unmodified training script, "
        "path/to/train.py, with its own flags after --; or yolov5n, s, m, l, x, mobilenet, shufflenet, depthwise.",
    ),
]
Yes = Annotated[bool, typer.Option("--yes", help="Run a script without asking.")]
MaxSeconds = Annotated[float, typer.Option(min=1, help="Time limit of a script until its third optimizer step.")]


@dataclass(frozen=True)
class Script:
    """A script on the command line.

    Attributes:
        path: the script.
        arguments: its own flags.
        batch: samples per batch of its DataLoader; the script's own if None.
        max_seconds: time limit until its third optimizer step.
        is_confirmed: True if it may run without asking.
    """

    path: str
    arguments: tuple[str, ...]
    batch: int | None
    max_seconds: float
    is_confirmed: bool

    def run_on(self, target: Target, *, stacks: bool = False) -> ScriptRun:
        """Return what to run for a device, after asking whether to run it.

        Args:
            target: the device.
            stacks: keep the lines of the script that made each allocation.

        Raises:
            UsageError: the batch is invalid, the answer is no, or there is no terminal to ask on.
        """
        from ...prediction import trace_device  # noqa: PLC0415
        from ...script import ScriptRun  # noqa: PLC0415
        from ...settings import Settings  # noqa: PLC0415
        from ...trace import EmulatedDevice  # noqa: PLC0415

        if self.batch is not None:
            Settings(batch=self.batch)
        if not self.is_confirmed:
            self._confirm()
        device = EmulatedDevice(trace_device(target), target.name, target.memory)
        return ScriptRun(self.path, self.arguments, self.batch, device, stacks=stacks)

    def _confirm(self) -> None:
        warning = (
            f"oomph will execute {self.path} up to its third optimizer step. It may write files and use the network."
        )
        if sys.stdin is None or not sys.stdin.isatty():
            raise UsageError(
                f"{quote(self.path)} would be executed, and may write files and use the network", "pass --yes"
            )
        typer.echo(warning, err=True)
        if not typer.confirm("Run it?", err=True):
            raise UsageError(f"{quote(self.path)} was not run", "answer y, or name a Job")


def is_script(reference: str) -> bool:
    """Return True for a script, False for a Job."""
    return reference.endswith(".py")


def reject_arguments(reference: str, arguments: list[str]) -> None:
    """Raise for flags after `--` of a Job.

    Raises:
        UsageError: there are some.
    """
    if arguments:
        raise UsageError(f"{quote(reference)} is a Job, which takes no arguments", "omit what follows it")


def reject_job_flags(given: dict[str, bool]) -> None:
    """Raise for flags that a script decides itself.

    Args:
        given: True for each flag that is on the command line.

    Raises:
        UsageError: there is one.
    """
    flag = next((flag for flag, is_given in given.items() if is_given), None)
    if flag is not None:
        raise UsageError(f"{flag} is for a Job; a script decides that itself", "pass the script's own flags after --")
