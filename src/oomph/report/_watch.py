"""View of `oomph watch`: a table that is redrawn on a terminal, one line per sample in a pipe."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from ..units import MIB, count_of, format_rate, format_size
from ._table import table
from ._text import printable

_MINUTE = 60.0
_TREND_SECONDS = 60.0  # a trend covers this time at most
_MIN_TREND_SECONDS = 3.0
_MIN_FORECAST_SECONDS = 20.0  # a trend over less time gives no forecast
_MIN_TREND_BYTES = MIB  # per minute; less is steady
_MAX_FORECAST_MINUTES = 24 * 60.0
_RED_FRACTION, _YELLOW_FRACTION = 0.92, 0.8
_BAR_WIDTH = 20
_MAX_LINE_PROCESSES = 3

Sample = Mapping[str, Any]


@dataclass(frozen=True)
class MemoryRow:
    """One kind of memory in the view: `used` of `limit`, with a note."""

    key: str
    name: str
    used: float
    limit: float | None = None
    note: str = ""


@dataclass
class WatchView:
    """The recent samples, shown as a table or a line.

    Attributes:
        title: What is watched.
        page_file: True if swap is called page file on this system.
    """

    title: str
    page_file: bool = False
    _history: deque[tuple[float, Sample]] = field(default_factory=deque)

    def add(self, timestamp: float, sample: Sample) -> None:
        """Add a sample."""
        self._history.append((timestamp, sample))
        while timestamp - self._history[0][0] > _TREND_SECONDS:
            self._history.popleft()

    def table(self) -> RenderableType:
        """Return the last sample as a table with bars."""
        rows = table("", ">used", ">of", "", "trend", "", plain=False)
        for row in self._rows():
            rows.add_row(
                Text(printable(row.name), "bold"),
                format_size(row.used),
                "" if row.limit is None else format_size(row.limit),
                _bar(row.used / row.limit) if row.limit else Text(),
                self._trend(row),
                Text(printable(row.note), "dim"),
            )
        title = Text(f"{printable(self.title)}, {self._clock()}", "bold")
        hint = Text("Press Ctrl-C to stop watching; the run continues.", "dim")
        return Group(title, rows, *self._process_table(), hint)

    def line(self) -> str:
        """Return the last sample as one line."""
        parts = [self._clock()]
        for row in self._rows():
            limit = "" if row.limit is None else f" of {format_size(row.limit)}"
            notes = ", ".join(filter(None, (self._trend(row), row.note)))
            parts.append(f"{row.name} {format_size(row.used)}{limit}" + (f" ({notes})" if notes else ""))
        for process in self._history[-1][1].get("processes", ())[:_MAX_LINE_PROCESSES]:
            gpu = f" and {format_size(process['gpu'])} of GPU memory" if "gpu" in process else ""
            parts.append(f"{process['name']} {process['pid']}: {format_size(process['rss'])}{gpu}")
        return printable("  ".join(parts))

    def _clock(self) -> str:
        return time.strftime("%H:%M:%S", time.localtime(self._history[-1][0]))

    def _rows(self) -> Iterator[MemoryRow]:
        return _memory_rows(self._history[-1][1], "page file" if self.page_file else "swap")

    def _trend(self, row: MemoryRow) -> str:
        """Return the change per minute, and the time until the memory is full at this rate."""
        now, _ = self._history[-1]
        sizes = ((timestamp, _used(sample, row.key)) for timestamp, sample in self._history)
        earlier = [(timestamp, used) for timestamp, used in sizes if used is not None]
        if not earlier or now - earlier[0][0] < _MIN_TREND_SECONDS:
            return ""
        start, first = earlier[0]
        per_minute = (row.used - first) / (now - start) * _MINUTE
        if abs(per_minute) < _MIN_TREND_BYTES:
            return "steady"
        rate = f"{'+' if per_minute > 0 else ''}{format_size(per_minute)}/min"
        if row.limit and per_minute > 0 and now - start >= _MIN_FORECAST_SECONDS:
            minutes_left = (row.limit - row.used) / per_minute
            if minutes_left < _MAX_FORECAST_MINUTES:
                return f"{rate}, full in {minutes_left:.0f} min"
        return rate

    def _process_table(self) -> Iterator[RenderableType]:
        processes = self._history[-1][1].get("processes")
        if processes is None:
            return
        if not processes:
            yield Text("No process looks like training.", "dim")
            return
        rows = table(">process", "", ">RAM", ">GPU", ">children", plain=False)
        for process in processes:
            rows.add_row(
                str(process["pid"]),
                Text(printable(process["name"])),
                format_size(process["rss"]),
                format_size(process["gpu"]) if "gpu" in process else "",
                str(process["children"]),
            )
        yield rows


def _memory_rows(sample: Sample, swap: str) -> Iterator[MemoryRow]:
    for gpu in sample.get("gpus", ()):
        name = f"GPU {gpu['index']}"
        yield MemoryRow(f"gpu{gpu['index']}", name, gpu["total"] - gpu["free"], gpu["total"], _gpu_note(gpu))
    if "rss" in sample:
        children = sample.get("children", 0)
        note = count_of(children, "child process", "child processes") if children else ""
        yield MemoryRow("rss", "process tree", sample["rss"], None, note)
    if "cgroup_limit" in sample:
        yield MemoryRow("cgroup_used", "cgroup", sample["cgroup_used"], sample["cgroup_limit"])
    if {"ram_total", "ram_available"} <= sample.keys():
        pressure = sample.get("pressure", 0)
        note = f"tasks wait for memory {pressure:.0f} % of the time" if pressure >= 1 else ""
        yield MemoryRow("ram", "RAM", sample["ram_total"] - sample["ram_available"], sample["ram_total"], note)
    if sample.get("swap_total"):
        rate = sample.get("swap_in_rate", 0) + sample.get("swap_out_rate", 0)
        note = f"paging {format_rate(rate)}" if rate else ""
        yield MemoryRow("swap_used", swap, sample.get("swap_used", 0), sample["swap_total"], note)
    if sample.get("shm_total"):
        yield MemoryRow("shm_used", "shared memory", sample["shm_used"], sample["shm_total"])


def _gpu_note(gpu: Mapping[str, Any]) -> str:
    parts = [gpu.get("name", "")]
    if "utilization" in gpu:
        parts.append(f"{gpu['utilization']} % busy")
    if gpu.get("tree_used"):
        parts.append(f"this tree {format_size(gpu['tree_used'])}")
    if gpu.get("others_used"):
        largest = f", process {gpu['other_pid']}" if "other_pid" in gpu else ""
        parts.append(f"others {format_size(gpu['others_used'])}{largest}")
    return ", ".join(filter(None, parts))


def _used(sample: Sample, key: str) -> float | None:
    return next((row.used for row in _memory_rows(sample, "") if row.key == key), None)


def _bar(fraction: float) -> Text:
    style = "red" if fraction >= _RED_FRACTION else "yellow" if fraction >= _YELLOW_FRACTION else "green"
    filled = min(round(fraction * _BAR_WIDTH), _BAR_WIDTH)
    return Text.assemble(("█" * filled, style), ("░" * (_BAR_WIDTH - filled), "dim"), f" {fraction:4.0%}")
