"""`oomph watch`."""

from __future__ import annotations

import platform
import re
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from ..errors import UsageError, shorten
from ._signals import exit_on_sigterm

if TYPE_CHECKING:
    from ..monitor import MachineProbe, Probe

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
    json: Annotated[
        bool, typer.Option("--json", help="Write each sample as one line of JSON and nothing else.")
    ] = False,
) -> None:
    """Show the memory of a process and its children live, with its limits.

    Shows GPU memory by process, RAM, swap or page file, loader workers and shared memory, with their trends: a table on
    a terminal, one line per sample in a pipe. Without a PID, shows the machine and the processes that look like
    training.
    """
    from ..monitor import MachineProbe, Probe  # noqa: PLC0415

    seconds, samples = _parse_interval(interval), _parse_count(count)
    source = MachineProbe() if pid is None else Probe(_parse_pid(pid))
    try:
        _show(source, seconds, samples, as_json=json)
    except KeyboardInterrupt:
        pass  # the usual way to stop
    finally:
        source.close()


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


def _show(source: Probe | MachineProbe, interval: float, count: int, *, as_json: bool) -> None:
    from ..monitor import Probe  # noqa: PLC0415

    tree = source.tree if isinstance(source, Probe) else None
    samples = _take_samples(source, interval, count)
    if as_json:
        _write_json(samples)
        return
    from ..report import LiveView, WatchView  # noqa: PLC0415

    title = "This machine" if tree is None else f"Process {tree.pid} ({tree.name})"
    view = WatchView(title, page_file=platform.system() == "Windows")
    with exit_on_sigterm(), LiveView(view) as live:
        for timestamp, sample in samples:
            view.add(timestamp, sample)
            live.show()
    if tree is not None and not tree.is_alive:
        sys.stdout.write(f"Process {tree.pid} has ended.\n")


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


def _write_json(samples: Iterator[tuple[float, dict[str, Any]]]) -> None:
    import json  # noqa: PLC0415

    for timestamp, sample in samples:
        line = {"oomph": "sample", "version": 1, "t": round(timestamp, 3), **sample}
        sys.stdout.write(json.dumps(line, allow_nan=False) + "\n")
        sys.stdout.flush()
