from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from oomph.failures import FailureKind, Finding
from oomph.monitor import Record, judge
from oomph.units import GIB, MIB

GPU = {"index": 0, "total": 8 * GIB, "free": 4 * GIB}
HOST = {"ram_total": 64 * GIB, "ram_available": 40 * GIB, "rss": 2 * GIB, "own_rss": GIB, "workers": 4}
TORCH = {"device": 0, "allocated": 3 * GIB, "peak": 4 * GIB, "reserved": 4 * GIB, "alloc_retries": 0}


def record(
    samples: Sequence[dict[str, Any]] = (),
    steps: Sequence[dict[str, Any]] = (),
    events: Sequence[dict[str, Any]] | None = None,
    system: str = "linux",
) -> Record:
    """A Record of a run that ended by itself, unless events are given."""
    ended = [{"event": "end"}] if events is None else events
    return Record(
        header={"host": "elsewhere", "pid": 1, "system": system},
        samples=tuple({"t": 100.0 + at, **sample} for at, sample in enumerate(samples)),
        steps=tuple({"t": 100.0 + at, "step": at, **step} for at, step in enumerate(steps)),
        events=tuple({"t": 100.0 + len(samples), **event} for event in ended),
        stretches=(99.0,),
    )


def kinds(found: Record) -> list[FailureKind]:
    return [finding.kind for finding in judge(found)]


def only(found: Record, kind: FailureKind) -> Finding:
    (finding,) = judge(found)
    assert finding.kind is kind
    return finding


def healthy(count: int = 300) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    source = random.Random(1)  # noqa: S311
    samples = [
        {**HOST, "rss": 2 * GIB + source.randint(0, 200) * MIB, "gpus": [GPU], "torch": [TORCH], "stalled": 5.0}
        for _ in range(count)
    ]
    steps = [
        {"seconds": 0.2, "wait": 0.01, "loss": 1.0, "allocated": GIB + source.randint(0, 50) * MIB, "alloc_retries": 2}
        for _ in range(count)
    ]
    return samples, steps


def test_a_healthy_run_has_no_verdict() -> None:
    assert judge(record(*healthy())) == ()


def test_an_empty_record_has_no_verdict() -> None:
    assert judge(record()) == ()


def test_thrash_is_retries_that_go_on() -> None:
    warm_up = [{"alloc_retries": min(at, 4)} for at in range(100)]
    assert judge(record(steps=warm_up)) == ()
    assert only(record(steps=[{"alloc_retries": at // 5} for at in range(100)]), FailureKind.THRASH).figures["of"] == 95
    sampled = [{**HOST, "torch": [{**TORCH, "alloc_retries": at}]} for at in range(60)]
    assert FailureKind.THRASH in kinds(record(samples=sampled))


def test_leaks_of_host_and_device_are_told_apart_with_the_time_left() -> None:
    device = only(record(steps=[{"allocated": GIB + at * 2 * MIB} for at in range(200)]), FailureKind.DEVICE_LEAK)
    assert device.figures["per_thousand"] == pytest.approx(2000 * MIB)
    assert "grew by 1.95 GiB in 1000 steps" in device.evidence
    growing = [{**HOST, "rss": GIB + at * 10 * MIB, "own_rss": GIB} for at in range(200)]
    host = only(record(samples=growing), FailureKind.HOST_LEAK)
    assert host.figures["per_hour"] == pytest.approx(36000 * MIB)
    assert "is full in 68 minutes" in host.detail[0]
    assert "child processes" in host.detail[1]


def test_fragmentation_counts_only_where_it_hurts() -> None:
    holes = {**TORCH, "reserved": 7 * GIB, "peak": 4 * GIB}
    roomy = [{**HOST, "gpus": [{**GPU, "total": 80 * GIB, "free": 70 * GIB}], "torch": [holes]}] * 5
    assert judge(record(samples=roomy)) == ()
    tight = [{**HOST, "gpus": [{**GPU, "free": MIB}], "torch": [holes]}] * 5
    assert only(record(samples=tight), FailureKind.FRAGMENTATION).figures["reserved"] == 7 * GIB


def test_another_process_is_named() -> None:
    shared = [{**HOST, "gpus": [{**GPU, "others": 3 * GIB, "other_pid": 77}]}] * 5
    assert "process 77" in only(record(samples=shared), FailureKind.OTHER_PROCESS).evidence
    desktop = [{**HOST, "gpus": [{**GPU, "others": 200 * MIB, "other_pid": 77}]}] * 5
    assert judge(record(samples=desktop)) == ()


@pytest.mark.parametrize("system", ["windows", "wsl"])
def test_spill_is_more_than_the_card_has_or_a_crawl_on_a_full_one(system: str) -> None:
    beyond = [{**HOST, "gpus": [GPU], "torch": [{**TORCH, "reserved": 10 * GIB, "peak": 9 * GIB}]}] * 5
    assert FailureKind.SPILL in kinds(record(samples=beyond, system=system))
    assert FailureKind.SPILL not in kinds(record(samples=beyond, system="linux"))
    full = [{**HOST, "gpus": [{**GPU, "free": MIB}]}] * 5
    crawl = [{"seconds": 0.1 if at < 50 else 2.0} for at in range(100)]
    assert kinds(record(samples=full, steps=crawl, system=system)) == [FailureKind.SPILL]
    assert kinds(record(samples=full, steps=[{"seconds": 0.1}] * 100, system=system)) == []


def test_paging_is_told_with_the_seconds_lost() -> None:
    moving = [{**HOST, "swap_in": 50 * MIB, "swap_out": 0, "stalled": at * 0.5} for at in range(40)]
    found = only(record(samples=moving, steps=[{"seconds": 1}] * 39), FailureKind.PAGING)
    assert found.figures["seconds_lost"] == pytest.approx(19.5)
    assert "0.50 seconds a step" in found.detail[0]
    once = [{**HOST, "swap_in": 50 * MIB if at == 3 else 0, "stalled": 0.1} for at in range(40)]
    assert judge(record(samples=once)) == ()


def test_waiting_for_the_loader_is_told_with_its_share() -> None:
    waiting = [{"seconds": 0.1, "wait": 0.3}] * 50
    assert only(record(steps=waiting), FailureKind.STARVED).figures["share"] == pytest.approx(0.75)
    told_late = [{"seconds": 0.01, "device_seconds": 0.2, "wait": 0.2, "late": 2}] * 50  # as a GPU tells it
    assert only(record(steps=told_late), FailureKind.STARVED).figures["share"] == pytest.approx(0.5)
    starting = [{"seconds": 0.1, "wait": 9.0 if at < 3 else 0.0} for at in range(50)]
    assert judge(record(steps=starting)) == ()


def test_numbers_that_are_none_are_told_with_their_first_step() -> None:
    losses = [{"loss": float("nan") if at >= 30 else 1.0} for at in range(50)]
    assert "nan at step 30, and in 20 of 50" in only(record(steps=losses), FailureKind.BAD_LOSS).evidence
    late = [{"loss": float("nan"), "late": 2} if at == 30 else {} for at in range(50)]
    assert "nan at step 28" in only(record(steps=late), FailureKind.BAD_LOSS).evidence
    norms = [{"grad_norm": float("inf") if at == 9 else 1.0} for at in range(50)]
    assert only(record(steps=norms), FailureKind.BAD_GRADIENTS).figures["steps"] == 1
    thrown_away = [{"grad_norm": float("inf"), "skipped": at < 3} if at < 3 else {} for at in range(50)]
    assert judge(record(steps=thrown_away)) == ()


def test_a_scaler_may_search_but_not_skip_for_good() -> None:
    searching = [{"skipped": at < 9} for at in range(200)]
    assert judge(record(steps=searching)) == ()
    stuck = [{"skipped": at > 150} for at in range(200)]
    assert only(record(steps=stuck), FailureKind.SKIPPED_STEPS).figures["in_a_row"] == 49
    often = [{"skipped": at % 3 == 0} for at in range(200)]
    assert kinds(record(steps=often)) == [FailureKind.SKIPPED_STEPS]


def test_a_run_that_stops_near_its_limit_was_killed_for_memory() -> None:
    full = [{**HOST, "ram_available": GIB, "rss": 60 * GIB}] * 5
    found = only(record(samples=full, events=[]), FailureKind.HOST_KILL)
    assert "63 GiB of 64 GiB of RAM in use" in found.evidence
    assert found.detail[-1] == "This run held 60 GiB of it."
    grouped = [{**HOST, "group_limit": 8 * GIB, "group_used": 7.9 * GIB}] * 5
    assert "the control group's memory" in only(record(samples=grouped, events=[]), FailureKind.HOST_KILL).evidence


def test_a_run_that_stops_with_memory_free_ended_otherwise() -> None:
    assert kinds(record(samples=[HOST] * 5, events=[])) == [FailureKind.UNCLEAN_END]


def test_an_error_that_was_still_written_is_the_first_finding() -> None:
    error = {"event": "error", "error": "OutOfMemoryError", "text": "CUDA out of memory. Tried to allocate 2.00 GiB."}
    found = judge(record(samples=[HOST] * 5, events=[error, {"event": "end"}]))
    assert found[0].kind is FailureKind.CUDA_OOM
    own = {"event": "error", "error": "FrobnicationError", "text": "no"}
    assert kinds(record(samples=[HOST], events=[own])) == [FailureKind.PYTHON_ERROR]


def test_only_the_last_stretch_of_a_resumed_run_counts_for_its_end() -> None:
    first = record(samples=[HOST] * 5, events=[{"event": "error", "text": "x"}, {"event": "end"}])
    resumed = Record(first.header, first.samples, first.steps, first.events, (99.0, 500.0))
    assert kinds(resumed) == [FailureKind.UNCLEAN_END]
