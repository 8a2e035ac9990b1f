"""Diagnosis of host memory: leaks and paging."""

from __future__ import annotations

from collections.abc import Iterator

from ...failures import FailureKind, Finding, measured_finding
from ...units import MIB, format_rate, format_size
from .._record import Fields, Record
from .._samples import host_use
from ._trend import find_growth

_MIN_LEAK_BYTES = 64 * MIB
_MIN_PAGING_RATE = MIB  # bytes per second; slower paging is not noticeable
_MIN_PAGING_FRACTION, _MIN_PAGING_SAMPLES = 0.05, 3  # samples with paging
_MIN_STALLED_FRACTION = 0.05  # of the time
_HOUR = 3600


def host_leak(record: Record) -> Iterator[Finding]:
    """Report an RSS of the process tree that grows steadily."""
    samples = [sample for sample in record.samples if "rss" in sample]
    growth = find_growth([sample["rss"] for sample in samples], _MIN_LEAK_BYTES)
    if growth is None:
        return
    per_second = growth.slope * (len(samples) - 1) / max(samples[-1]["t"] - samples[0]["t"], 1e-3)
    use = host_use(samples[-1])
    details = []
    if use.limit:
        time_left = _format_duration((use.limit - use.used) / per_second)
        details.append(f"At this rate, the {use.name} of {format_size(use.limit)} is exhausted in {time_left}.")
    if samples[-1].get("children") and growth.total > 2 * _main_process_growth(samples):
        details.append("Most of it is in the child processes: loader workers copy pages of Python objects they touch.")
    yield measured_finding(
        FailureKind.HOST_LEAK,
        f"The process tree grew by {format_size(per_second * _HOUR)} per hour, to {format_size(samples[-1]['rss'])}.",
        {"per_hour": per_second * _HOUR, "grown": growth.total},
        *details,
        time=samples[-1]["t"],
    )


def _main_process_growth(samples: list[Fields]) -> float:
    sizes = [sample["main_rss"] for sample in samples if "main_rss" in sample]
    growth = find_growth(sizes, 0)
    return 0.0 if growth is None else growth.total


def paging(record: Record) -> Iterator[Finding]:
    """Report paging during the run, and the time that it cost."""
    rates = [sample.get("swap_in_rate", 0) + sample.get("swap_out_rate", 0) for sample in record.samples]
    noticeable = [rate for rate in rates if rate >= _MIN_PAGING_RATE]
    stalled, seconds = _stalled_time(record)
    is_frequent = len(noticeable) >= max(_MIN_PAGING_SAMPLES, _MIN_PAGING_FRACTION * len(rates))
    if not is_frequent and stalled < max(_MIN_STALLED_FRACTION * seconds, 1):
        return
    max_rate = max(rates, default=0)
    evidence = f"Up to {format_rate(max_rate)} moved to and from the disk." if noticeable else "Memory was short."
    details = []
    if stalled >= 1:
        evidence += f" All tasks waited for memory for {stalled:.0f} of {seconds:.0f} seconds."
        if record.steps:
            details.append(f"That is {stalled / len(record.steps):.2f} seconds per step.")
    numbers = {"rate": max_rate, "seconds_lost": stalled, "seconds": seconds}
    fastest = max(zip(rates, record.samples, strict=True), key=lambda pair: pair[0])[1] if rates else None
    time = None if fastest is None else fastest["t"]
    yield measured_finding(FailureKind.PAGING, evidence, numbers, *details, time=time)


def _stalled_time(record: Record) -> tuple[float, float]:
    """Return the seconds in which all tasks waited for memory, and all seconds, since the last start."""
    counters = [
        (sample["t"], sample["stalled_seconds"])
        for sample in record.samples
        if "stalled_seconds" in sample and sample["t"] >= record.start_times[-1]
    ]
    if not counters:
        return 0.0, 0.0
    (start, first), (end, last) = counters[0], counters[-1]
    return max(last - first, 0.0), end - start


def _format_duration(seconds: float) -> str:
    if seconds < 0:
        return "no time"
    for size, name in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {name}"
    return f"{seconds:.0f} seconds"
