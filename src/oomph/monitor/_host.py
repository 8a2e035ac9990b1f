"""Verdicts on the host's memory: leaks and paging."""

from __future__ import annotations

from collections.abc import Iterator

from ..failures import FailureKind, Finding, find_measured
from ..units import MIB, format_rate, format_size
from ._death import fullness
from ._record import Fields, Record
from ._trend import find_growth

_LEAST = 64 * MIB  # growth of host memory that is worth a word
_FELT = MIB  # bytes a second to and from swap that are felt
_OFTEN, _FEWEST = 0.05, 3  # share and number of samples with paging
_STALLED = 0.05  # share of the time in which everything stood still
_HOUR = 3600


def host_leak(record: Record) -> Iterator[Finding]:
    """Resident memory of the process tree that grows for good."""
    samples = [sample for sample in record.samples if "rss" in sample]
    growth = find_growth([sample["rss"] for sample in samples], _LEAST)
    if growth is None:
        return
    per_second = growth.slope * (len(samples) - 1) / max(samples[-1]["t"] - samples[0]["t"], 1e-3)
    _, used, limit, name = fullness(samples[-1])
    detail = []
    if limit:
        detail.append(
            f"At this rate {name} ({format_size(limit)}) is full in {_duration((limit - used) / per_second)}."
        )
    if samples[-1].get("workers") and growth.total > 2 * _own_growth(samples):
        detail.append("Most of it is in the child processes: loader workers copy pages of Python objects they touch.")
    yield find_measured(
        FailureKind.HOST_LEAK,
        f"The process tree grew by {format_size(per_second * _HOUR)} an hour, to {format_size(samples[-1]['rss'])}.",
        {"per_hour": per_second * _HOUR, "grown": growth.total},
        *detail,
    )


def _own_growth(samples: list[Fields]) -> float:
    own = [sample["own_rss"] for sample in samples if "own_rss" in sample]
    growth = find_growth(own, 0)
    return 0.0 if growth is None else growth.total


def paging(record: Record) -> Iterator[Finding]:
    """Swap or page file in use while the run goes, and what that cost."""
    rates = [sample.get("swap_in", 0) + sample.get("swap_out", 0) for sample in record.samples]
    felt = [rate for rate in rates if rate >= _FELT]
    stalled, seconds = _stalled(record)
    often = len(felt) >= max(_FEWEST, _OFTEN * len(rates))
    if not often and stalled < max(_STALLED * seconds, 1):
        return
    lost = f" Everything stood still for {stalled:.0f} of {seconds:.0f} seconds." if stalled >= 1 else ""
    steps = [f"That is {stalled / len(record.steps):.2f} seconds a step."] if lost and record.steps else []
    moved = f"Up to {format_rate(max(rates, default=0))} moved to and from the disk." if felt else "Memory was short."
    yield find_measured(
        FailureKind.PAGING,
        moved + lost,
        {"rate": max(rates, default=0), "seconds_lost": stalled, "seconds": seconds},
        *steps,
    )


def _stalled(record: Record) -> tuple[float, float]:
    """Seconds that every task stood still, and seconds in all, over the last stretch."""
    counted = [(s["t"], s["stalled"]) for s in record.samples if "stalled" in s and s["t"] >= record.stretches[-1]]
    if len(counted) < 2:  # noqa: PLR2004  a difference takes two
        return 0.0, 0.0
    (began, first), (ended, last) = counted[0], counted[-1]
    return max(last - first, 0.0), ended - began


def _duration(seconds: float) -> str:
    if seconds < 0:
        return "no time"
    for size, name in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {name}"
    return f"{seconds:.0f} seconds"
