"""Validation counts every sample once, in micro-batches as small as needed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from oomph.errors import RetriesExhausted, UsageError
from oomph.recovery import Guard

from .faults import CUDA_OOM, FailingCall, FaultAt, FaultIn
from .nets import Rig, plain_batch, plain_guard


class Metric:
    def __init__(self) -> None:
        self.values: list[float] = []
        self.count = torch.zeros(())

    def update(self, outputs: Tensor) -> None:
        self.count += len(outputs)
        for value in outputs[:, 0]:
            self.values.append(float(value))


def evaluate_with_errors(operations: list[int]) -> tuple[list[int], Metric, int, int]:
    """Return the sizes of the micro-batches, the metric, the number of operations, and of the model's calls."""
    metric = Metric()
    rig = Rig(extra_state=metric)

    def function(model: nn.Module, batch: Any) -> int:
        assert not model.training
        assert not torch.is_grad_enabled()
        outputs = model(batch[0])
        metric.update(outputs)
        metric.update(outputs)
        return len(outputs)

    batches = rig.batches(2)
    with FaultAt(operations) as mode:
        sizes = rig.guard.evaluate(batches, function)
    assert rig.net.training
    return sizes, metric, mode.count, int(rig.net.calls)


@pytest.mark.medium
def test_error_at_every_operation_of_a_validation() -> None:
    sizes, _, count, _ = evaluate_with_errors([])
    assert sizes == [8, 8]
    for operation in range(1, count + 1):
        sizes, metric, _, calls = evaluate_with_errors([operation])
        assert sum(sizes) == 16
        assert float(metric.count) == 32
        assert len(metric.values) == 32
        assert calls == len(sizes)


def test_a_validation_that_never_fits_ends_the_run() -> None:
    guard = plain_guard()
    with pytest.raises(RetriesExhausted), FaultIn("addmm"):
        guard.evaluate([plain_batch()], lambda model, batch: model(batch[0]))


def validate(guard: Guard, samples: list[int], failures: dict[int, int]) -> list[int]:
    """Return the sizes of micro-batches; those of a size in `failures` run out of memory that many times."""

    def function(model: nn.Module, batch: Any) -> int:
        del model
        size = len(batch[0])
        if failures.get(size, 0):
            failures[size] -= 1
            raise torch.OutOfMemoryError(CUDA_OOM)
        return size

    sizes: list[int] = guard.evaluate([plain_batch(count) for count in samples], function)
    return sizes


def test_micro_batches_grow_back_after_quiet_batches() -> None:
    guard = plain_guard(cooldown_steps=2)
    assert validate(guard, [64], {64: 1, 32: 1}) == [16] * 4
    assert validate(guard, [64], {}) == [16] * 4
    assert validate(guard, [64] * 6, {})[-2:] == [64, 64]


def test_a_larger_micro_batch_that_fails_is_tried_less_often() -> None:
    guard = plain_guard(cooldown_steps=1)
    failures = {64: 1000}
    assert validate(guard, [64] * 40, failures) == [32] * 80
    assert 1000 - failures[64] < 8


def test_the_last_smaller_batch_does_not_change_the_micro_batch_of_full_ones() -> None:
    guard = plain_guard()
    assert validate(guard, [64, 1, 64], {1: 1}) == [64, 1, 64]
    assert validate(guard, [64, 6, 64], {6: 2, 3: 1}) == [64, 2, 1, 3, 64]
    with pytest.raises(RetriesExhausted):
        validate(guard, [64, 1, 64], {1: 2})


def test_validation_does_not_change_the_micro_batch_of_training() -> None:
    guard = plain_guard()
    assert validate(guard, [8], {8: 1}) == [4, 4]
    assert guard.step(plain_batch()).micro_batches == 1


def test_another_model_can_be_evaluated() -> None:
    rig = Rig()
    outputs = rig.guard.evaluate(rig.batches(1), lambda model, batch: model(batch[0]).sum(), model=rig.ema)
    expected = rig.ema.eval()(rig.batches(1)[0][0]).sum()
    assert len(outputs) == 1
    assert rig.net.training
    torch.testing.assert_close(outputs[0], expected, rtol=0.1, atol=0.1)  # the net multiplies random noise


def test_extra_state_keeps_its_references_when_another_model_is_evaluated() -> None:
    metric = SimpleNamespace(weights=[], count=0)
    rig = Rig(extra_state=metric)
    metric.weights += rig.net.parameters()
    fail = FailingCall(lambda: None)

    def function(model: nn.Module, batch: Any) -> None:
        metric.count += len(model(batch[0]))
        fail()

    rig.guard.evaluate(rig.batches(1), function, model=rig.ema)
    assert metric.count == 8
    assert list(map(id, metric.weights)) == list(map(id, rig.net.parameters()))


def test_each_module_keeps_its_own_mode() -> None:
    rig = Rig()
    rig.net.norm.eval()
    rig.guard.evaluate(rig.batches(1), lambda model, batch: model(batch[0]))
    assert rig.net.training
    assert rig.net.drop.training
    assert not rig.net.norm.training


def test_a_batch_that_the_function_changed_is_not_evaluated_again() -> None:
    fail = FailingCall(lambda: None)

    def halve(model: nn.Module, batch: Any) -> Tensor:
        batch[0].div_(2)
        fail()
        result: Tensor = model(batch[0]).sum()
        return result

    with pytest.raises(UsageError, match="changed its batch in place"):
        plain_guard().evaluate([plain_batch()], halve)
