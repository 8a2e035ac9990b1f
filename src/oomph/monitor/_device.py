"""Verdicts on the device's memory: leaks, thrash, fragmentation, other processes, spill."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator, Sequence

from ..failures import FailureKind, Finding, find_measured
from ..units import GIB, MIB, format_size
from ._death import was_out_of_device_memory
from ._record import Fields, Record
from ._trend import FEWEST, find_growth

_LEAST = 32 * MIB  # growth of device memory that is worth a word
_SETTLED = 5  # steps after which the allocator should have what it needs
_RECENT = 200  # steps that thrash is judged over
_RETRYING, _RETRYING_SHARE = 3, 0.02  # steps with retries, of those
_HOLES, _HOLES_SHARE = GIB, 0.25  # reserved beyond the peak that is called fragmentation
_OTHERS, _OTHERS_SHARE = GIB // 2, 0.1  # held by others: always worth a word, or only where it is tight
_TIGHT = 0.1  # share of the GPU that is free when it is called tight
_FULL, _SLOWER = 0.03, 3.0  # free share and slowdown from which steps are called spilled
_THOUSAND = 1000


def device_leak(record: Record) -> Iterator[Finding]:
    """Allocated memory that grows for good."""
    values = [step["allocated"] for step in record.steps if _is_size(step.get("allocated"))]
    by = "1000 steps"
    if len(values) < FEWEST:
        values = [one["allocated"] for one in allocators(record.samples)]
        by = "1000 samples"
    growth = find_growth(values, _LEAST)
    if growth is not None:
        yield find_measured(
            FailureKind.DEVICE_LEAK,
            f"Allocated memory grew by {format_size(growth.slope * _THOUSAND)} in {by}, to {format_size(values[-1])}.",
            {"per_thousand": growth.slope * _THOUSAND, "grown": growth.total},
        )


def thrash(record: Record) -> Iterator[Finding]:
    """Allocation retries that go on after the first steps."""
    counted = [step["alloc_retries"] for step in record.steps if _is_size(step.get("alloc_retries"))]
    unit = "steps"
    if len(counted) <= _SETTLED:
        counted, unit = [one["alloc_retries"] for one in allocators(record.samples)], "samples"
    recent = counted[_SETTLED:][-_RECENT:]
    grew = sum(after > before for before, after in itertools.pairwise(recent))
    if grew >= max(_RETRYING, _RETRYING_SHARE * len(recent)):
        yield find_measured(
            FailureKind.THRASH,
            f"{grew} of the last {len(recent)} {unit} had to give cached blocks back and ask again "
            f"({recent[-1] - recent[0]:.0f} retries).",
            {"retries": recent[-1] - recent[0], "of": len(recent)},
        )


def fragmentation(record: Record) -> Iterator[Finding]:
    """Much more reserved than was ever allocated, and trouble because of it."""
    found = list(allocators(record.samples))
    if not found or not (_is_tight(record) or found[-1]["alloc_retries"] or was_out_of_device_memory(record)):
        return
    reserved, peak = max(one["reserved"] for one in found), max(one["peak"] for one in found)
    holes = reserved - peak
    if holes >= max(_HOLES, _HOLES_SHARE * reserved):
        yield find_measured(
            FailureKind.FRAGMENTATION,
            f"{format_size(reserved)} was reserved, and never more than {format_size(peak)} of it in use.",
            {"reserved": reserved, "peak": peak},
        )


def other_process(record: Record) -> Iterator[Finding]:
    """Memory of the GPU that somebody else holds."""
    worst: tuple[float, Fields] | None = None
    for sample in record.samples:
        for gpu in sample.get("gpus", ()):
            others = gpu.get("others", 0)
            tight = gpu["free"] < _TIGHT * gpu["total"]
            counts = others >= _OTHERS and (tight or others >= _OTHERS_SHARE * gpu["total"])
            if counts and (worst is None or others > worst[0]):
                worst = others, gpu
    if worst is not None:
        others, gpu = worst
        who = f" (the largest is process {gpu['other_pid']})" if "other_pid" in gpu else ""
        yield find_measured(
            FailureKind.OTHER_PROCESS,
            f"Others held {format_size(others)} of the {format_size(gpu['total'])} of GPU {gpu['index']}{who}.",
            {"others": others, "total": gpu["total"], "device": gpu["index"]},
        )


def spill(record: Record) -> Iterator[Finding]:
    """More in use than the card has, or steps that crawl on a full card, where the driver spills."""
    if record.header.get("system") not in {"windows", "wsl"}:
        return
    totals = {gpu["index"]: gpu["total"] for sample in record.samples for gpu in sample.get("gpus", ())}
    reserved = max((one["reserved"] for one in allocators(record.samples)), default=0)
    total = max(totals.values(), default=0)
    if total and reserved > total:
        yield find_measured(
            FailureKind.SPILL,
            f"{format_size(reserved)} was reserved on a card of {format_size(total)}.",
            {"reserved": reserved, "total": total},
        )
    elif _is_tight(record, _FULL) and (slower := _slower(record)) >= _SLOWER:
        yield find_measured(
            FailureKind.SPILL,
            f"The card is full, and steps take {slower:.0f} times as long as the fastest ones.",
            {"slower": slower, "total": total},
        )


def allocators(samples: Sequence[Fields]) -> Iterator[Fields]:
    """What torch's allocator said in each sample, of the device that holds most."""
    for sample in samples:
        if found := sample.get("torch"):
            yield max(found, key=lambda one: one["reserved"])


def _is_tight(record: Record, share: float = _TIGHT) -> bool:
    return any(gpu["free"] < share * gpu["total"] for sample in record.samples[-20:] for gpu in sample.get("gpus", ()))


def _slower(record: Record) -> float:
    seconds = [step["seconds"] for step in record.steps[_SETTLED:] if _is_size(step.get("seconds"))]
    if len(seconds) < FEWEST:
        return 1.0
    fast = sorted(seconds)[len(seconds) // 10]
    return statistics.median(seconds[-20:]) / fast if fast > 0 else 1.0


def _is_size(value: object) -> bool:
    return isinstance(value, (int, float)) and 0 <= value < float("inf")
