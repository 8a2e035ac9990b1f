"""`oomph watch`."""

from __future__ import annotations

import json
import platform
import re
import signal
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from ..errors import UsageError, shorten
from ._signals import exit_on_sigterm

if TYPE_CHECKING:
    from ..monitor import MachineProbe, Probe

_SIGNAL_EXIT_CODE = 128  # plus the number of the signal, as shells report it
_MIN_INTERVAL, _MAX_INTERVAL = 0.05, 3600.0  # seconds


def watch(
    pid: Annotated[
        Optional[str],  # noqa: UP045  typer on Python 3.10 reads it at run time
        typer.Argument(metavar="PID", help="The process to watch with its children; without it, the whole machine."),
    ] = None,
    interval: Annotated[str, typer.Option(metavar="SECONDS", help="Time between samples.")] = "1",
    count: Annotated[
        str, typer.Option(metavar="NUMBER", help="Number of samples; 0 continues until the process ends or Ctrl-C.")
    ] = "0",
    as_json: Annotated[
        bool, typer.Option("--json", help="Write each sample as one line of JSON and nothing else.")
    ] = False,
) -> None:
    """Show the memory of a process and its children live, with its limits.

    Shows GPU memory by process, RAM, swap or page file, loader workers and shared memory, with their history and the
    time until they are full: a screen on a terminal, one line per sample in a pipe. Without a PID, shows the machine
    and the processes that look like training or use a GPU; the arrow keys select one, Enter opens it, q quits.
    """
    from ..report import can_show_screen  # noqa: PLC0415

    root = None if pid is None else _parse_pid(pid)
    seconds, samples = _parse_interval(interval), _parse_count(count)
    if not as_json and can_show_screen():
        _show_screen(root, seconds, samples)
    else:
        _write_samples(root, seconds, samples, as_json=as_json)


# Numbers are parsed here because typer's messages for invalid numbers differ between versions.
def _parse_pid(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,10}", text) or int(text) == 0:
        raise UsageError(f"{shorten(text)!r} is not a process id", "run `oomph watch` without a PID to list processes")
    return int(text)


def _parse_interval(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = float("nan")
    if not _MIN_INTERVAL <= seconds <= _MAX_INTERVAL:
        raise UsageError(
            f"{shorten(text)!r} is not a valid interval", f"use {_MIN_INTERVAL:g} to {_MAX_INTERVAL:g} seconds"
        )
    return seconds


def _parse_count(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise UsageError(f"{shorten(text)!r} is not a number of samples", "use a whole number; 0 means no limit")
    return int(text)


def _show_screen(root: int | None, interval: float, count: int) -> None:
    """Show the screen; afterwards, print the last sample of a process that has ended or of a complete count."""
    from ..report import run_screen  # noqa: PLC0415

    result = run_screen(root, interval, count)
    if result.error is not None:
        raise result.error
    if result.last_line and (result.has_ended or result.is_complete):
        sys.stdout.write(f"{result.last_line}\n")
    if result.has_ended:
        sys.stdout.write(f"Process {root} has ended.\n")
    if result.signal not in {None, signal.SIGINT}:
        raise typer.Exit(_SIGNAL_EXIT_CODE + result.signal)


def _write_samples(root: int | None, interval: float, count: int, *, as_json: bool) -> None:
    """Write one line per sample."""
    from ..monitor import MachineProbe, Probe  # noqa: PLC0415
    from ..report import WatchLines  # noqa: PLC0415

    source = MachineProbe() if root is None else Probe(root)
    samples = _take_samples(source, interval, count)
    lines = WatchLines(page_file=platform.system() == "Windows")
    try:
        with exit_on_sigterm():
            for timestamp, sample in samples:
                sys.stdout.write((_json_line if as_json else lines.add)(timestamp, sample) + "\n")
                sys.stdout.flush()
        if isinstance(source, Probe) and not source.tree.is_alive and not as_json:
            sys.stdout.write(f"Process {root} has ended.\n")
    except KeyboardInterrupt:
        pass  # the usual way to stop
    finally:
        source.close()


def _take_samples(source: Probe | MachineProbe, interval: float, count: int) -> Iterator[tuple[float, dict[str, Any]]]:
    """Yield a sample every `interval` seconds, until there are `count` of them or the process has ended."""
    from ..monitor import Probe  # noqa: PLC0415

    due, taken = time.monotonic(), 0
    while not isinstance(source, Probe) or source.tree.is_alive:
        yield time.time(), source.read()
        taken += 1
        if taken == count:
            return
        due = max(due + interval, time.monotonic())
        time.sleep(max(due - time.monotonic(), 0))


def _json_line(timestamp: float, sample: dict[str, Any]) -> str:
    line = {"oomph": "sample", "version": 1, "t": round(timestamp, 3), **sample}
    return json.dumps(line, allow_nan=False)
