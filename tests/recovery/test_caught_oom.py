"""Out-of-memory errors are recognized, caught without the memory that they hold, and described."""

from __future__ import annotations

import errno
import gc
import sys
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from oomph.errors import OomphError, RetriesExhausted
from oomph.recovery import CaughtOom
from oomph.recovery._caught_oom import catch_oom, retry_on_oom

from .faults import CUDA_OOM, OOM_ERRORS, FailingCall, in_split_check
from .nets import plain_batch, plain_guard

CUDA_SENTENCE = (
    "CUDA out of memory. Tried to allocate {requested}. GPU 0 has a total capacity of 139.80 GiB of which 99.92 GiB is "
    "free. Including non-PyTorch memory, this process has 31.94 GiB memory in use. 31.35 GiB allowed; Of the allocated "
    "memory 31.17 GiB is allocated by PyTorch, and {unused} is reserved by PyTorch but unallocated."
)


def caught(error: BaseException) -> CaughtOom | None:
    def work() -> None:
        raise error

    return catch_oom(work)


@pytest.mark.parametrize("create", OOM_ERRORS)
def test_out_of_memory_errors_are_caught_without_their_frames(create: Any) -> None:
    error: Exception = create()
    oom = caught(error)
    assert oom is not None
    assert oom.error is error
    assert error.__traceback__ is None
    assert oom.stack is not None
    assert oom.stack[-1].name == "work"
    assert not oom.is_remote


@pytest.mark.parametrize(
    "error",
    [
        ValueError("CUDA out of memory, says the user"),
        RuntimeError("mat1 and mat2 shapes cannot be multiplied (8x3 and 4x6)"),
        OSError(errno.ENOMEM, "Cannot allocate memory", "labels.cache"),
        OSError(errno.EMFILE, "Too many open files"),
        RuntimeError("DataLoader worker (pid 123) is killed by signal: Killed."),
    ],
    ids=["ValueError", "shape", "file", "open files", "worker"],
)
def test_errors_that_smaller_micro_batches_cannot_fix_propagate_at_once(error: Exception) -> None:
    calls = []

    def forward(model: nn.Module, batch: Any) -> Tensor:
        del model, batch
        calls.append(in_split_check())
        raise error

    with pytest.raises(type(error)) as info:
        plain_guard().step(plain_batch(), forward=forward)
    assert info.value is error
    assert calls.count(False) == 1


@pytest.mark.parametrize(
    ("requested", "unused", "is_capacity"), [("1024.00 MiB", "30.97 MiB", True), ("20.00 MiB", "2.10 GiB", False)]
)
def test_fragmentation_is_ruled_out_if_all_unused_memory_is_too_little(
    requested: str, unused: str, *, is_capacity: bool
) -> None:
    oom = caught(torch.OutOfMemoryError(CUDA_SENTENCE.format(requested=requested, unused=unused)))
    assert oom is not None
    assert oom.is_capacity is is_capacity


def test_fragmentation_is_possible_without_numbers() -> None:
    assert not CaughtOom(None).is_capacity
    oom = caught(RuntimeError("CUDA error: out of memory"))
    assert oom is not None
    assert not oom.is_capacity


def test_an_error_of_another_rank_has_a_message_and_a_kind() -> None:
    oom = CaughtOom(None)
    assert oom.is_remote
    assert oom.message == "out of memory on another rank"
    assert oom.kind == "another-rank"
    assert not oom.is_ambiguous
    assert oom.annotated_error() is None


@pytest.mark.parametrize(
    ("error", "is_ambiguous"),
    [
        (torch.OutOfMemoryError(CUDA_OOM), False),
        (MemoryError(), False),
        (MemoryError("my cache is full"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_INTERNAL_ERROR when calling `cublasSgemm`"), True),
    ],
)
def test_errors_that_may_not_be_about_memory_are_ambiguous(error: Exception, *, is_ambiguous: bool) -> None:
    oom = caught(error)
    assert oom is not None
    assert oom.is_ambiguous is is_ambiguous


@pytest.mark.parametrize("evaluates", [False, True])
def test_the_final_error_names_the_cause_and_where_it_was_raised(*, evaluates: bool) -> None:
    def greedy(model: nn.Module, batch: Any) -> Tensor:
        del model, batch
        raise torch.OutOfMemoryError(CUDA_OOM)

    guard = plain_guard()
    with pytest.raises(RetriesExhausted) as info:
        guard.evaluate([plain_batch()], greedy) if evaluates else guard.step(plain_batch(), forward=greedy)
    cause = info.value.__cause__
    assert isinstance(cause, torch.OutOfMemoryError)
    assert cause.__traceback__ is None, "it would hold everything that was in memory"
    if sys.version_info >= (3, 11):
        assert "in greedy" in cause.__notes__[-1]


def test_a_caught_error_holds_no_tensors() -> None:
    tensors: list[weakref.ref[Tensor]] = []

    def forward(model: nn.Module, batch: Any) -> Tensor:
        large = torch.ones(1000)
        if in_split_check():
            return model(batch[0]).sum(1).mean()
        tensors.append(weakref.ref(large))
        if len(tensors) == 1:
            raise torch.OutOfMemoryError(CUDA_OOM)
        assert tensors[0]() is None, "the failed attempt is still in memory when the next one starts"
        return model(batch[0]).sum(1).mean() * large.mean()

    gc.disable()
    try:
        plain_guard().step(plain_batch(), forward=forward)
    finally:
        gc.enable()
    assert len(tensors) == 3


def test_a_chain_of_exceptions_holds_no_tensors() -> None:
    tensors: list[weakref.ref[Tensor]] = []

    def parse() -> int:
        large = torch.randn(1000)
        tensors.append(weakref.ref(large))
        return int(f"{large.numel()} values")

    def work() -> None:
        try:
            parse()
        except ValueError as error:
            raise torch.OutOfMemoryError(CUDA_OOM) from error

    gc.disable()
    try:
        oom = catch_oom(work)
        assert oom is not None
        assert tensors[0]() is None
    finally:
        gc.enable()


def test_a_restore_is_retried_until_it_succeeds_or_the_run_must_end() -> None:
    work = FailingCall(lambda: None, 1)
    retry_on_oom(work)
    assert work.count == 2

    def never() -> None:
        raise MemoryError

    with pytest.raises(OomphError, match=r"the step can't be completed or undone.*resume from the last"):
        retry_on_oom(never)
