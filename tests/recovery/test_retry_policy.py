"""The order of fallbacks after out-of-memory errors, and the return to larger micro-batches."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from oomph.recovery._retry_policy import Backoff, LastFallback, RetryPolicy
from oomph.recovery._step_report import Fallback

from .faults import FaultAt, in_split_check
from .nets import plain_batch, plain_guard
from .test_caught_oom import CUDA_SENTENCE


def test_backoff_counts_quiet_steps_and_doubles_the_wait_after_a_failed_try() -> None:
    backoff = Backoff(3)
    assert [backoff.count() for _ in range(7)] == [False, False, True, False, False, True, False]
    backoff.lengthen()
    assert backoff.wait == 6
    assert [backoff.count() for _ in range(6)] == [False] * 5 + [True]
    backoff.lengthen()
    assert backoff.wait == 12
    backoff.reset()
    assert backoff.wait == 3


def test_backoff_starts_to_count_again_after_an_interruption() -> None:
    backoff = Backoff(3)
    due = []
    for _ in range(2):
        backoff.count()
        due.append(backoff.is_due_next)
    backoff.interrupt()
    assert [*due, backoff.is_due_next] == [False, True, False]
    assert [backoff.count() for _ in range(3)] == [False, False, True]


def test_backoff_has_a_longest_wait() -> None:
    backoff = Backoff(20)
    for _ in range(100):
        backoff.lengthen()
    assert backoff.wait == 1 << 14


def test_backoff_continues_from_a_saved_state() -> None:
    backoff, other = Backoff(4), Backoff(9)
    backoff.lengthen()
    backoff.count()
    other.load_state_dict(backoff.state_dict())
    assert [other.count() for _ in range(8)] == [backoff.count() for _ in range(8)]
    other.reset()
    assert other.wait == 9, "the initial wait is an option of the run"


def test_cached_memory_is_freed_first_unless_fragmentation_is_ruled_out() -> None:
    for may_be_fragmented, name in ((True, "free_cache"), (False, "micro_batch")):
        policy = RetryPolicy(frees_cache=True)
        fallback = policy.next_fallback(8, may_be_fragmented=may_be_fragmented)
        assert fallback is not None
        assert fallback.name == name


@pytest.mark.parametrize(("unused", "first"), [("30.97 MiB", "micro_batch"), ("2.10 GiB", "free_cache")])
def test_the_guard_reads_from_the_error_if_memory_may_be_fragmented(unused: str, first: str) -> None:
    failures = [torch.OutOfMemoryError(CUDA_SENTENCE.format(requested="1024.00 MiB", unused=unused))]

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        if failures and not in_split_check():
            raise failures.pop()
        return nn.functional.mse_loss(outputs, targets)

    guard = plain_guard(loss)
    guard.retry_policy._frees_cache = True  # as on a GPU
    assert [fallback.name for fallback in guard.step(plain_batch()).fallbacks] == [first]


def test_the_order_of_fallbacks() -> None:
    applied: list[str] = []

    def last(name: str, *, works: bool = True) -> LastFallback:
        def apply() -> bool:
            applied.append(name)
            return works

        return LastFallback(Fallback(name, name, "time"), apply, lambda: None)

    policy = RetryPolicy(frees_cache=True, last_fallbacks=(last("checkpoint"), last("none", works=False), last("size")))
    names = []
    while (fallback := policy.next_fallback(4)) is not None:
        names.append(fallback.name)
    assert names == ["free_cache", "micro_batch", "micro_batch", "collect_garbage", "checkpoint", "size"]
    assert applied == ["checkpoint", "none", "size"]
    assert policy.micro_batches(4) == 4
    policy.on_success(4, lambda _: True)
    assert policy.next_fallback(4) is not None, "the next step may free memory again"


@given(samples=st.integers(1, 100), largest=st.integers(1, 100), smallest=st.integers(1, 4), errors=st.integers(0, 8))
def test_micro_batches_respect_both_limits(samples: int, largest: int, smallest: int, errors: int) -> None:
    policy = RetryPolicy(max_micro_batch=largest)
    for _ in range(errors):
        policy.next_fallback(samples, smallest)
    count = policy.micro_batches(samples, smallest)
    assert 1 <= count <= max(1, samples // smallest)
    limit = min(largest, policy.micro_batch or samples)
    assert -(-samples // count) <= max(limit, 2 * smallest - 1)


def test_micro_batches_grow_back_after_quiet_steps() -> None:
    guard = plain_guard(cooldown_steps=3)
    with FaultAt([5, 40]):
        assert guard.step(plain_batch()).micro_batches == 4
    counts = [guard.step(plain_batch()).micro_batches for _ in range(10)]
    assert counts == [4, 4, 2, 2, 2, 1, 1, 1, 1, 1]


def test_micro_batches_grow_back_in_a_resumed_run() -> None:
    guard, resumed = plain_guard(cooldown_steps=3), plain_guard(cooldown_steps=3)
    with FaultAt([5, 40]):
        assert guard.step(plain_batch()).micro_batches == 4
    resumed.load_state_dict(guard.state_dict())
    counts = [resumed.step(plain_batch()).micro_batches for _ in range(10)]
    assert (counts[0], counts[-1]) == (4, 1)


def test_a_larger_micro_batch_that_fails_is_tried_again_after_twice_the_wait() -> None:
    guard = plain_guard(cooldown_steps=2)
    with FaultAt([5]):
        guard.step(plain_batch())
    guard.step(plain_batch())
    with FaultAt([5]):  # the step with the larger micro-batch
        report = guard.step(plain_batch())
    assert (report.retries, report.micro_batches) == (1, 2)
    assert "larger ones are tried again in 4 steps" in report.fallbacks[0].cost
    assert guard.retry_policy.wait_steps == 4


def test_a_larger_micro_batch_that_fits_resets_the_wait() -> None:
    guard = plain_guard(cooldown_steps=2)
    with FaultAt([5]):
        guard.step(plain_batch())
    guard.step(plain_batch())
    with FaultAt([5]):
        guard.step(plain_batch())
    waits, counts = [], []
    for _ in range(5):
        counts.append(guard.step(plain_batch()).micro_batches)
        waits.append(guard.retry_policy.wait_steps)
    assert counts == [2, 2, 2, 1, 1]
    assert waits == [4, 4, 4, 2, 2]


def test_micro_batches_do_not_grow_beyond_the_requested_size() -> None:
    guard = plain_guard(micro_batch=2, cooldown_steps=1)
    assert [guard.step(plain_batch()).micro_batches for _ in range(4)] == [4] * 4
    assert guard.step(plain_batch(3)).micro_batches == 2


def test_a_passing_shortage_does_not_end_a_run_with_single_samples() -> None:
    guard = plain_guard()
    guard.step(plain_batch())
    for number in range(2):
        with FaultAt([5]):
            report = guard.step(plain_batch(1))
        assert [fallback.name for fallback in report.fallbacks] == ["collect_garbage"]
        assert guard.steps == 2 + number


class Node:
    """Refers to itself, so that only the garbage collector frees it."""

    def __init__(self) -> None:
        self.itself = self


def test_garbage_collection_frees_reference_cycles() -> None:
    garbage: list[weakref.ref[Node]] = []

    def forward(model: nn.Module, batch: Any) -> Tensor:
        if garbage[0]() is not None:
            raise MemoryError
        return nn.functional.mse_loss(model(batch[0]), batch[1])

    guard = plain_guard(forward=forward)
    gc.disable()
    try:
        garbage.append(weakref.ref(Node()))
        report = guard.step(plain_batch(1))
    finally:
        gc.enable()
    assert [fallback.name for fallback in report.fallbacks] == ["collect_garbage"]


def predicting_guard(predict: Any, budget: int) -> Any:
    return plain_guard(predict=predict, budget=budget, cooldown_steps=1)


def test_the_first_retry_uses_the_micro_batch_that_is_predicted_to_fit() -> None:
    sizes = []

    def predict(samples: int) -> int:
        sizes.append(samples)
        return samples << 40  # a TiB for each sample

    guard = predicting_guard(predict, 3 << 40)
    with FaultAt([5]):
        report = guard.step(plain_batch(16))
    assert (report.micro_batches, report.retries) == (8, 1)
    assert sizes == [8, 4, 2]
    assert [guard.step(plain_batch(16)).micro_batches for _ in range(3)] == [8] * 3
    assert sizes == [8, 4, 2], "each size is predicted once"


def test_a_prediction_that_nothing_fits_is_ignored() -> None:
    guard = predicting_guard(lambda samples: (samples + 1) << 60, 1 << 40)
    with FaultAt([5]):
        assert guard.step(plain_batch()).micro_batches == 2
