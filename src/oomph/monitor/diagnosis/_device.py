"""Diagnosis of device memory: leaks, thrashing, fragmentation, other processes, spill."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator

from ...failures import FailureKind, Finding, measured_finding
from ...units import GIB, MIB, format_size
from .._record import Fields, Record
from .._samples import allocator_stats
from ._exit import ran_out_of_device_memory
from ._trend import MIN_VALUES, find_growth

_MIN_LEAK_BYTES = 32 * MIB
_WARMUP_STEPS = 5  # after these steps the allocator should have all the memory it needs
_MAX_RECENT_STEPS = 200  # steps that are checked for thrashing
_MIN_RETRYING_STEPS, _MIN_RETRYING_FRACTION = 3, 0.02
_MIN_UNUSED_BYTES, _MIN_UNUSED_FRACTION = GIB, 0.25  # reserved beyond the peak: fragmentation
_MIN_OTHERS_BYTES, _MIN_OTHERS_FRACTION = GIB // 2, 0.1  # the fraction doesn't matter on a nearly full GPU
_NEARLY_FULL_FRACTION = 0.1  # free memory of a nearly full GPU
_SPILL_FRACTION, _MIN_SPILL_SLOWDOWN = 0.03, 3.0  # free memory and slowdown that mean a spill
_RECENT_SAMPLES = 20
_RECENT_STEPS = 20


def device_leak(record: Record) -> Iterator[Finding]:
    """Report allocated memory that grows steadily."""
    values = [step["allocated"] for step in record.steps if _is_size(step.get("allocated"))]
    unit = "steps"
    if len(values) < MIN_VALUES:
        values, unit = [stats["allocated"] for stats in allocator_stats(record.samples)], "samples"
    growth = find_growth(values, _MIN_LEAK_BYTES)
    if growth is not None:
        per_thousand = growth.slope * 1000
        yield measured_finding(
            FailureKind.DEVICE_LEAK,
            f"Allocated memory grew by {format_size(per_thousand)} in 1000 {unit}, to {format_size(values[-1])}.",
            {"per_thousand": per_thousand, "grown": growth.total},
            time=record.last_time,
        )


def thrashing(record: Record) -> Iterator[Finding]:
    """Report allocation retries that continue after the first steps."""
    counters = [step["alloc_retries"] for step in record.steps if _is_size(step.get("alloc_retries"))]
    unit = "steps"
    if len(counters) <= _WARMUP_STEPS:
        counters, unit = [stats["alloc_retries"] for stats in allocator_stats(record.samples)], "samples"
    recent = counters[_WARMUP_STEPS:][-_MAX_RECENT_STEPS:]
    retrying = sum(after > before for before, after in itertools.pairwise(recent))
    if retrying >= max(_MIN_RETRYING_STEPS, _MIN_RETRYING_FRACTION * len(recent)):
        retries = recent[-1] - recent[0]
        yield measured_finding(
            FailureKind.THRASHING,
            f"The allocator released cached blocks and retried in {retrying} of the last {len(recent)} {unit} "
            f"({retries:.0f} retries).",
            {"retries": retries, "of": len(recent)},
            time=record.last_time,
        )


def fragmentation(record: Record) -> Iterator[Finding]:
    """Report much more reserved than allocated memory, if memory is short."""
    stats = list(allocator_stats(record.samples))
    if not stats:
        return
    if not (_is_nearly_full(record) or stats[-1]["alloc_retries"] or ran_out_of_device_memory(record)):
        return
    reserved, peak = max(entry["reserved"] for entry in stats), max(entry["peak"] for entry in stats)
    if reserved - peak >= max(_MIN_UNUSED_BYTES, _MIN_UNUSED_FRACTION * reserved):
        yield measured_finding(
            FailureKind.FRAGMENTATION,
            f"{format_size(reserved)} was reserved, and at most {format_size(peak)} of it was in use.",
            {"reserved": reserved, "peak": peak},
            time=_time_of_most_reserved(record),
        )


def other_process(record: Record) -> Iterator[Finding]:
    """Report memory of other processes on the GPUs that the run uses: on the others they may be other ranks."""
    used = {gpu["index"] for sample in record.samples for gpu in sample.get("gpus", ()) if gpu.get("tree_used")}
    gpus = [
        (sample["t"], gpu)
        for sample in record.samples
        for gpu in sample.get("gpus", ())
        if _has_large_others(gpu) and (not used or gpu["index"] in used)
    ]
    if not gpus:
        return
    time, gpu = max(gpus, key=lambda pair: pair[1]["others_used"])
    largest = f" (the largest is process {gpu['other_pid']})" if "other_pid" in gpu else ""
    sizes = f"{format_size(gpu['others_used'])} of the {format_size(gpu['total'])}"
    yield measured_finding(
        FailureKind.OTHER_PROCESS,
        f"Other processes used {sizes} of GPU {gpu['index']}{largest}.",
        {"others": gpu["others_used"], "total": gpu["total"], "device": gpu["index"]},
        time=time,
    )


def _has_large_others(gpu: Fields) -> bool:
    others, total = float(gpu.get("others_used", 0)), float(gpu["total"])
    is_nearly_full = gpu["free"] < _NEARLY_FULL_FRACTION * total
    return others >= _MIN_OTHERS_BYTES and (is_nearly_full or others >= _MIN_OTHERS_FRACTION * total)


def spill(record: Record) -> Iterator[Finding]:
    """Report a spill by the Windows driver: more reserved than the card has, or slow steps on a full card."""
    if record.header.get("system") not in {"windows", "wsl"}:
        return
    totals = {gpu["index"]: gpu["total"] for sample in record.samples for gpu in sample.get("gpus", ())}
    reserved = max((stats["reserved"] for stats in allocator_stats(record.samples)), default=0)
    total = max(totals.values(), default=0)
    if total and reserved > total:
        yield measured_finding(
            FailureKind.SPILL,
            f"{format_size(reserved)} was reserved on a card with {format_size(total)}.",
            {"reserved": reserved, "total": total},
            time=_time_of_most_reserved(record),
        )
    elif _is_nearly_full(record, _SPILL_FRACTION) and (slowdown := _slowdown(record)) >= _MIN_SPILL_SLOWDOWN:
        yield measured_finding(
            FailureKind.SPILL,
            f"The card is full, and steps take {slowdown:.0f} times as long as the fastest ones.",
            {"slower": slowdown, "total": total},
            time=record.last_time,
        )


def _time_of_most_reserved(record: Record) -> float:
    def reserved(sample: Fields) -> float:
        return max((float(stats["reserved"]) for stats in allocator_stats((sample,))), default=0.0)

    return float(max(record.samples, key=reserved)["t"])


def _is_nearly_full(record: Record, fraction: float = _NEARLY_FULL_FRACTION) -> bool:
    recent = record.samples[-_RECENT_SAMPLES:]
    return any(gpu["free"] < fraction * gpu["total"] for sample in recent for gpu in sample.get("gpus", ()))


def _slowdown(record: Record) -> float:
    """Return the median time of recent steps relative to the fastest tenth."""
    seconds = [step["seconds"] for step in record.steps[_WARMUP_STEPS:] if _is_size(step.get("seconds"))]
    if len(seconds) < MIN_VALUES:
        return 1.0
    fast = sorted(seconds)[len(seconds) // 10]
    return statistics.median(seconds[-_RECENT_STEPS:]) / fast if fast > 0 else 1.0


def _is_size(value: object) -> bool:
    return isinstance(value, (int, float)) and 0 <= value < float("inf")
