"""`oomph watch`."""

from __future__ import annotations

import contextlib
import platform
import re
import signal
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, Optional

import typer

from ..errors import UsageError

if TYPE_CHECKING:
    from ..monitor import MachineProbe, Probe

_SHORTEST, _LONGEST = 0.05, 3600.0
_ENDED = 128 + 15  # what shells expect of a program ended by SIGTERM


def watch(
    pid: Annotated[
        Optional[str],  # noqa: UP045  typer on Python 3.10 reads it at run time
        typer.Argument(metavar="PID", help="The process to watch, with all it starts; without one, the machine."),
    ] = None,
    interval: Annotated[str, typer.Option(metavar="SECONDS", help="Time between two samples.")] = "1",
    count: Annotated[
        str, typer.Option(metavar="NUMBER", help="Samples to take; 0 goes on until the process ends, or Ctrl-C.")
    ] = "0",
    json: Annotated[
        bool, typer.Option("--json", help="Write each sample as one line of JSON and nothing else.")
    ] = False,
) -> None:
    """Show the memory of a process and of all it started, live, against its limits.

    GPUs by process, RAM, swap or page file and how much moves, loader workers, shared memory, with the trend. A table
    on a terminal, a line for each sample in a pipe. Without a process: the machine, and what looks like training on it.
    """
    from ..monitor import MachineProbe, Probe  # noqa: PLC0415

    seconds, samples = _seconds(interval), _count(count)
    source = MachineProbe() if pid is None else Probe(_number(pid))
    try:
        _show(source, seconds, samples, as_json=json)
    except KeyboardInterrupt:
        pass  # the usual way to end it
    finally:
        source.close()


def _number(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,10}", text) or int(text) == 0:
        raise UsageError(f"{text[:40]!r} is no process number", "`oomph watch` without a number shows what runs")
    return int(text)


# Numbers are read here, because typer's words for one that is none differ from one version to the next.
def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = float("nan")
    if not _SHORTEST <= seconds <= _LONGEST:
        raise UsageError(f"{text[:40]!r} is no interval", f"write seconds, from {_SHORTEST:g} to {_LONGEST:g}")
    return seconds


def _count(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise UsageError(f"{text[:40]!r} is no number of samples", "write a whole number, 0 for no end")
    return int(text)


def _show(source: Probe | MachineProbe, interval: float, count: int, *, as_json: bool) -> None:
    from ..monitor import Probe  # noqa: PLC0415

    tree = source.tree if isinstance(source, Probe) else None
    samples = _samples(source, interval, count)
    if as_json:
        _write_json(samples)
        return
    from ..report import LiveView, WatchView  # noqa: PLC0415

    title = "This machine" if tree is None else f"Process {tree.pid} ({tree.name})"
    view = WatchView(title, page_file=platform.system() == "Windows")
    with _tidy_end(), LiveView(view) as live:
        for when, sample in samples:
            view.add(when, sample)
            live.show()
    if tree is not None and not tree.alive:
        sys.stdout.write(f"Process {tree.pid} has ended.\n")


def _samples(source: Probe | MachineProbe, interval: float, count: int) -> Iterator[tuple[float, dict[str, Any]]]:
    """A sample every `interval`, until there are `count` of them or the process has ended."""
    from ..monitor import Probe  # noqa: PLC0415

    due, taken = time.monotonic(), 0
    while not isinstance(source, Probe) or source.tree.alive:
        yield time.time(), source.read()
        taken += 1
        if taken == count:
            return
        due = max(due + interval, time.monotonic())
        time.sleep(max(due - time.monotonic(), 0))


def _write_json(samples: Iterator[tuple[float, dict[str, Any]]]) -> None:
    import json  # noqa: PLC0415

    for when, sample in samples:
        line = {"oomph": "sample", "version": 1, "t": round(when, 3), **sample}
        sys.stdout.write(json.dumps(line, allow_nan=False) + "\n")
        sys.stdout.flush()


@contextlib.contextmanager
def _tidy_end() -> Iterator[None]:
    """Let a polite signal to end unwind the view, so that it gives the cursor back."""

    def leave(number: int, frame: object) -> NoReturn:
        del number, frame
        sys.exit(_ENDED)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
