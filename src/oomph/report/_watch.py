"""The view of `oomph watch`: a table that is drawn anew on a terminal, a line for each sample in a pipe."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from ..units import MIB, format_rate, format_size
from ._table import table
from ._text import printable

_MINUTE = 60.0
_TREND_SECONDS = 60.0  # a trend is told over this long
_SHORTEST = 3.0  # and over no less
_FORESEEING = 20.0  # and seconds from which it is worth a look ahead
_STEADY = MIB  # bytes a minute that count as none
_SOON = 24 * 60.0  # minutes after which nobody asks when it will be full
_RED, _YELLOW = 0.92, 0.8
_BAR = 20
_NAMED = 3  # processes on a line

Sample = Mapping[str, Any]


@dataclass(frozen=True)
class Row:
    """One thing that is watched: `used` of `limit`, and what else there is to say about it."""

    key: str
    name: str
    used: float
    limit: float | None = None
    note: str = ""


@dataclass
class WatchView:
    """The samples so far, and how the last one looks beside them.

    Attributes:
        title: what is watched.
        page_file: whether swap is called page file here.
    """

    title: str
    page_file: bool = False
    _history: deque[tuple[float, Sample]] = field(default_factory=deque)

    def add(self, when: float, sample: Sample) -> None:
        """Take one more sample."""
        self._history.append((when, sample))
        while when - self._history[0][0] > _TREND_SECONDS:
            self._history.popleft()

    def table(self) -> RenderableType:
        """The last sample as a table with bars."""
        made = table("", ">used", ">of", "", "trend", "", plain=False)
        for row in self._rows():
            share = None if not row.limit else row.used / row.limit
            made.add_row(
                Text(printable(row.name), "bold"),
                format_size(row.used),
                "" if row.limit is None else format_size(row.limit),
                Text() if share is None else _bar(share),
                self._trend(row),
                Text(printable(row.note), "dim"),
            )
        when = time.strftime("%H:%M:%S", time.localtime(self._history[-1][0]))
        return Group(Text(f"{printable(self.title)}, {when}", "bold"), made, *self._processes(), _farewell())

    def line(self) -> str:
        """The last sample as one line."""
        parts = [time.strftime("%H:%M:%S", time.localtime(self._history[-1][0]))]
        for row in self._rows():
            limit = "" if row.limit is None else f" of {format_size(row.limit)}"
            trend = self._trend(row)
            extra = ", ".join(filter(None, (trend, row.note)))
            parts.append(f"{row.name} {format_size(row.used)}{limit}" + (f" ({extra})" if extra else ""))
        for one in self._history[-1][1].get("processes", ())[:_NAMED]:
            gpu = f" and {format_size(one['gpu'])} of GPU memory" if "gpu" in one else ""
            parts.append(f"{one['name']} {one['pid']}: {format_size(one['rss'])}{gpu}")
        return printable("  ".join(parts))

    def _rows(self) -> Iterator[Row]:
        return rows(self._history[-1][1], "page file" if self.page_file else "swap")

    def _trend(self, row: Row) -> str:
        """How it moves, and when it will be full if it goes on like this."""
        now, _ = self._history[-1]
        before = [(when, found) for when, sample in self._history if (found := _find(sample, row.key)) is not None]
        if len(before) < 2 or now - before[0][0] < _SHORTEST:  # noqa: PLR2004  a difference takes two
            return ""
        per_minute = (row.used - before[0][1]) / (now - before[0][0]) * _MINUTE
        if abs(per_minute) < _STEADY:
            return "steady"
        words = f"{'+' if per_minute > 0 else ''}{format_size(per_minute)}/min"
        left = (row.limit - row.used) / per_minute if row.limit and per_minute > 0 else _SOON
        foreseen = left < _SOON and now - before[0][0] >= _FORESEEING
        return f"{words}, full in {left:.0f} min" if foreseen else words

    def _processes(self) -> Iterator[RenderableType]:
        found = self._history[-1][1].get("processes")
        if found is None:
            return
        if not found:
            yield Text("No process here looks like training.", "dim")
            return
        made = table(">process", "", ">RAM", ">GPU", ">children", plain=False)
        for one in found:
            gpu = format_size(one["gpu"]) if "gpu" in one else ""
            made.add_row(
                str(one["pid"]), Text(printable(one["name"])), format_size(one["rss"]), gpu, str(one["children"])
            )
        yield made


def rows(sample: Sample, swap: str) -> Iterator[Row]:
    """What a sample says, one row a thing."""
    for gpu in sample.get("gpus", ()):
        yield Row(f"gpu{gpu['index']}", f"GPU {gpu['index']}", gpu["total"] - gpu["free"], gpu["total"], _gpu(gpu))
    if "rss" in sample:
        workers = sample.get("workers", 0)
        note = f"{workers} child process{'' if workers == 1 else 'es'}" if workers else ""
        yield Row("rss", "process tree", sample["rss"], None, note)
    if "group_limit" in sample:
        yield Row("group_used", "control group", sample["group_used"], sample["group_limit"])
    if {"ram_total", "ram_available"} <= sample.keys():
        pressure = sample.get("pressure", 0)
        note = f"tasks wait for memory {pressure:.0f} % of the time" if pressure >= 1 else ""
        yield Row("ram", "RAM", sample["ram_total"] - sample["ram_available"], sample["ram_total"], note)
    if sample.get("swap_total"):
        moving = sample.get("swap_in", 0) + sample.get("swap_out", 0)
        note = f"moving {format_rate(moving)}" if moving else ""
        yield Row("swap_used", swap, sample.get("swap_used", 0), sample["swap_total"], note)
    if sample.get("shm_total"):
        yield Row("shm_used", "shared memory", sample["shm_used"], sample["shm_total"])


def _gpu(gpu: Mapping[str, Any]) -> str:
    ours = f"this tree {format_size(gpu['ours'])}" if gpu.get("ours") else ""
    others = ""
    if gpu.get("others"):
        others = f"others {format_size(gpu['others'])}" + (
            f", process {gpu['other_pid']}" if "other_pid" in gpu else ""
        )
    busy = f"{gpu['busy']} % busy" if "busy" in gpu else ""
    return ", ".join(filter(None, (gpu.get("name", ""), busy, ours, others)))


def _find(sample: Sample, key: str) -> float | None:
    """The value that a row showed in an earlier sample."""
    return next((row.used for row in rows(sample, "") if row.key == key), None)


def _bar(share: float) -> Text:
    style = "red" if share >= _RED else "yellow" if share >= _YELLOW else "green"
    filled = min(round(share * _BAR), _BAR)
    return Text.assemble(("█" * filled, style), ("░" * (_BAR - filled), "dim"), f" {share:4.0%}")


def _farewell() -> Text:
    return Text("Ctrl-C ends the watching, not the run.", "dim")
