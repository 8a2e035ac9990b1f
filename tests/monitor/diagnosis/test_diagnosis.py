from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from oomph.failures import FailureKind, Finding
from oomph.monitor import Record, diagnose_record
from oomph.units import GIB, MIB

GPU = {"index": 0, "total": 8 * GIB, "free": 4 * GIB}
HOST = {"ram_total": 64 * GIB, "ram_available": 40 * GIB, "rss": 2 * GIB, "main_rss": GIB, "children": 4}
TORCH = {"device": 0, "allocated": 3 * GIB, "peak": 4 * GIB, "reserved": 4 * GIB, "alloc_retries": 0}


def record(
    samples: Sequence[dict[str, Any]] = (),
    steps: Sequence[dict[str, Any]] = (),
    events: Sequence[dict[str, Any]] | None = None,
    system: str = "linux",
) -> Record:
    """Return a Record with a regular end, unless events are given."""
    ended = [{"event": "end"}] if events is None else events
    return Record(
        header={"host": "elsewhere", "pid": 1, "system": system},
        samples=tuple({"t": 100.0 + index, **sample} for index, sample in enumerate(samples)),
        steps=tuple({"t": 100.0 + index, "step": index, **step} for index, step in enumerate(steps)),
        events=tuple({"t": 100.0 + len(samples), **event} for event in ended),
        start_times=(99.0,),
    )


def kinds(diagnosed: Record) -> list[FailureKind]:
    return [finding.kind for finding in diagnose_record(diagnosed)]


def only(diagnosed: Record, kind: FailureKind) -> Finding:
    (finding,) = diagnose_record(diagnosed)
    assert finding.kind is kind
    return finding


def healthy(count: int = 300) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    source = random.Random(1)  # noqa: S311
    samples = [
        {**HOST, "rss": 2 * GIB + source.randint(0, 200) * MIB, "gpus": [GPU], "torch": [TORCH], "stalled_seconds": 5.0}
        for _ in range(count)
    ]
    steps = [
        {"seconds": 0.2, "wait": 0.01, "loss": 1.0, "allocated": GIB + source.randint(0, 50) * MIB, "alloc_retries": 2}
        for _ in range(count)
    ]
    return samples, steps


def test_healthy_run_has_no_findings() -> None:
    assert diagnose_record(record(*healthy())) == ()


def test_empty_record_has_no_findings() -> None:
    assert diagnose_record(record()) == ()


def test_continued_retries_are_thrashing() -> None:
    warm_up = [{"alloc_retries": min(index, 4)} for index in range(100)]
    assert diagnose_record(record(steps=warm_up)) == ()
    retrying = [{"alloc_retries": index // 5} for index in range(100)]
    assert only(record(steps=retrying), FailureKind.THRASHING).numbers["of"] == 95
    sampled = [{**HOST, "torch": [{**TORCH, "alloc_retries": index}]} for index in range(60)]
    assert FailureKind.THRASHING in kinds(record(samples=sampled))


def test_leaks_of_device_and_host_are_reported() -> None:
    device = only(record(steps=[{"allocated": GIB + index * 2 * MIB} for index in range(200)]), FailureKind.DEVICE_LEAK)
    assert device.numbers["per_thousand"] == pytest.approx(2000 * MIB)
    assert "grew by 1.95 GiB in 1000 steps" in device.evidence
    growing = [{**HOST, "rss": GIB + index * 10 * MIB, "main_rss": GIB} for index in range(200)]
    host = only(record(samples=growing), FailureKind.HOST_LEAK)
    assert host.numbers["per_hour"] == pytest.approx(36000 * MIB)
    assert "the RAM of 64 GiB is exhausted in 68 minutes" in host.details[0]
    assert "child processes" in host.details[1]


def test_fragmentation_counts_only_if_memory_is_short() -> None:
    holes = {**TORCH, "reserved": 7 * GIB, "peak": 4 * GIB}
    roomy = [{**HOST, "gpus": [{**GPU, "total": 80 * GIB, "free": 70 * GIB}], "torch": [holes]}] * 5
    assert diagnose_record(record(samples=roomy)) == ()
    tight = [{**HOST, "gpus": [{**GPU, "free": MIB}], "torch": [holes]}] * 5
    assert only(record(samples=tight), FailureKind.FRAGMENTATION).numbers["reserved"] == 7 * GIB


def test_other_process_is_named() -> None:
    shared = [{**HOST, "gpus": [{**GPU, "others_used": 3 * GIB, "other_pid": 77}]}] * 5
    assert "process 77" in only(record(samples=shared), FailureKind.OTHER_PROCESS).evidence
    rank = {**GPU, "index": 1, "tree_used": GIB, "others_used": 0}
    other_rank = {**GPU, "tree_used": 0, "others_used": 5 * GIB}
    assert diagnose_record(record(samples=[{**HOST, "gpus": [other_rank, rank]}] * 5)) == ()
    desktop = [{**HOST, "gpus": [{**GPU, "others_used": 200 * MIB, "other_pid": 77}]}] * 5
    assert diagnose_record(record(samples=desktop)) == ()


@pytest.mark.parametrize("system", ["windows", "wsl"])
def test_spill_is_reported_on_windows(system: str) -> None:
    beyond = [{**HOST, "gpus": [GPU], "torch": [{**TORCH, "reserved": 10 * GIB, "peak": 9 * GIB}]}] * 5
    assert FailureKind.SPILL in kinds(record(samples=beyond, system=system))
    assert FailureKind.SPILL not in kinds(record(samples=beyond, system="linux"))
    full = [{**HOST, "gpus": [{**GPU, "free": MIB}]}] * 5
    crawl = [{"seconds": 0.1 if index < 50 else 2.0} for index in range(100)]
    assert kinds(record(samples=full, steps=crawl, system=system)) == [FailureKind.SPILL]
    assert kinds(record(samples=full, steps=[{"seconds": 0.1}] * 100, system=system)) == []


def test_paging_is_reported_with_the_time_lost() -> None:
    moving = [
        {**HOST, "swap_in_rate": 50 * MIB, "swap_out_rate": 0, "stalled_seconds": index * 0.5} for index in range(40)
    ]
    finding = only(record(samples=moving, steps=[{"seconds": 1}] * 39), FailureKind.PAGING)
    assert finding.numbers["seconds_lost"] == pytest.approx(19.5)
    assert "0.50 seconds per step" in finding.details[0]
    once = [{**HOST, "swap_in_rate": 50 * MIB if index == 3 else 0, "stalled_seconds": 0.1} for index in range(40)]
    assert diagnose_record(record(samples=once)) == ()


def test_waiting_for_the_loader_is_reported_with_its_fraction() -> None:
    waiting = [{"seconds": 0.1, "wait": 0.3}] * 50
    assert only(record(steps=waiting), FailureKind.STARVED).numbers["fraction"] == pytest.approx(0.75)
    late = [{"seconds": 0.01, "device_seconds": 0.2, "wait": 0.2, "late": 2}] * 50  # as on a GPU
    assert only(record(steps=late), FailureKind.STARVED).numbers["fraction"] == pytest.approx(0.5)
    starting = [{"seconds": 0.1, "wait": 9.0 if index < 3 else 0.0} for index in range(50)]
    assert diagnose_record(record(steps=starting)) == ()


def test_non_finite_values_are_reported_with_their_first_step() -> None:
    losses = [{"loss": float("nan") if index >= 30 else 1.0} for index in range(50)]
    assert "nan at step 30, and in 20 of 50" in only(record(steps=losses), FailureKind.NON_FINITE_LOSS).evidence
    late = [{"loss": float("nan"), "late": 2} if index == 30 else {} for index in range(50)]
    assert "nan at step 28" in only(record(steps=late), FailureKind.NON_FINITE_LOSS).evidence
    norms = [{"grad_norm": float("inf") if index == 9 else 1.0} for index in range(50)]
    assert only(record(steps=norms), FailureKind.NON_FINITE_GRADIENTS).numbers["steps"] == 1
    skipped = [{"grad_norm": float("inf"), "skipped": index < 3} if index < 3 else {} for index in range(50)]
    assert diagnose_record(record(steps=skipped)) == ()


def test_scaler_may_skip_only_a_few_steps() -> None:
    searching = [{"skipped": index < 9} for index in range(200)]
    assert diagnose_record(record(steps=searching)) == ()
    stuck = [{"skipped": index > 150} for index in range(200)]
    assert only(record(steps=stuck), FailureKind.SKIPPED_STEPS).numbers["in_a_row"] == 49
    often = [{"skipped": index % 3 == 0} for index in range(200)]
    assert kinds(record(steps=often)) == [FailureKind.SKIPPED_STEPS]


def test_record_that_stops_with_full_memory_was_killed() -> None:
    full = [{**HOST, "ram_available": GIB, "rss": 60 * GIB}] * 5
    finding = only(record(samples=full, events=[]), FailureKind.OOM_KILL)
    assert "63 GiB of 64 GiB in use (RAM)" in finding.evidence
    assert finding.details[-1] == "This run used 60 GiB of it."
    grouped = [{**HOST, "cgroup_limit": 8 * GIB, "cgroup_used": 7.9 * GIB}] * 5
    assert "(cgroup limit)" in only(record(samples=grouped, events=[]), FailureKind.OOM_KILL).evidence


def test_record_that_stops_with_free_memory_ended_unexpectedly() -> None:
    assert kinds(record(samples=[HOST] * 5, events=[])) == [FailureKind.UNEXPECTED_END]


def test_recorded_error_is_the_first_finding() -> None:
    error = {"event": "error", "error": "OutOfMemoryError", "text": "CUDA out of memory. Tried to allocate 2.00 GiB."}
    findings = diagnose_record(record(samples=[HOST] * 5, events=[error, {"event": "end"}]))
    assert findings[0].kind is FailureKind.CUDA_OOM
    user_error = {"event": "error", "error": "FrobnicationError", "text": "no"}
    assert kinds(record(samples=[HOST], events=[user_error])) == [FailureKind.PYTHON_ERROR]


def test_error_before_a_resume_is_not_the_end() -> None:
    first = record(samples=[HOST] * 5, events=[{"event": "error", "text": "x"}, {"event": "end"}])
    resumed = Record(first.header, first.samples, first.steps, first.events, (99.0, 500.0))
    assert kinds(resumed) == [FailureKind.UNEXPECTED_END]


def test_findings_have_the_time_where_they_happened() -> None:
    losses = [{"loss": float("nan") if index >= 30 else 1.0} for index in range(50)]
    assert only(record(steps=losses), FailureKind.NON_FINITE_LOSS).time == 130
    stuck = [{"skipped": index > 150} for index in range(200)]
    assert only(record(steps=stuck), FailureKind.SKIPPED_STEPS).time == 251
    waiting = [{"seconds": 0.1, "wait": 0.9 if index == 33 else 0.3} for index in range(50)]
    assert only(record(steps=waiting), FailureKind.STARVED).time == 133
    moving = [{**HOST, "swap_in_rate": (60 if index == 7 else 50) * MIB} for index in range(40)]
    assert only(record(samples=moving), FailureKind.PAGING).time == 107
    others = [{**HOST, "gpus": [{**GPU, "others_used": (4 if index == 3 else 3) * GIB}]} for index in range(5)]
    assert only(record(samples=others), FailureKind.OTHER_PROCESS).time == 103
    holes = [
        {"device": 0, "allocated": GIB, "peak": 4 * GIB, "reserved": (7 if index == 2 else 6) * GIB}
        for index in range(5)
    ]
    tight = [{**HOST, "gpus": [{**GPU, "free": MIB}], "torch": [{**TORCH, **hole}]} for hole in holes]
    assert only(record(samples=tight), FailureKind.FRAGMENTATION).time == 102
    killed = only(record(samples=[HOST] * 5, events=[]), FailureKind.UNEXPECTED_END)
    assert killed.time == 104
    error = {"event": "error", "error": "OutOfMemoryError", "text": "CUDA out of memory. Tried to allocate 2.00 GiB."}
    assert diagnose_record(record(samples=[HOST] * 5, events=[error]))[0].time == 105
