"""Metrics are summed over the micro-batches of a step, once per sample."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from oomph.errors import UsageError
from oomph.recovery.splitting import Metrics

from ..faults import FaultAt, FaultIn
from ..nets import plain_batch, plain_guard, plain_net


def any_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs - targets).pow(2).mean()


def sizes(outputs: Tensor, batch: Any) -> dict[str, Any]:
    return {"samples": len(batch[0]), "sum": outputs.sum(), "ones": torch.ones(3)}


def check(metrics: Any, batch: Any) -> None:
    assert set(metrics) == {"samples", "sum", "ones"}
    assert metrics["samples"] == len(batch[0])
    assert torch.equal(metrics["ones"], torch.full((3,), float(metrics["ones"][0])))
    torch.testing.assert_close(metrics["sum"], plain_net()(batch[0]).sum().detach())
    assert not metrics["sum"].requires_grad


@pytest.mark.parametrize("loss", [nn.functional.mse_loss, any_loss], ids=["one pass", "two passes"])
@pytest.mark.parametrize("micro_batch", [None, 4, 3])
def test_metrics_are_summed_over_micro_batches(loss: Any, micro_batch: int | None) -> None:
    batch = plain_batch()
    report = plain_guard(loss, micro_batch=micro_batch, metrics=sizes).step(batch)
    check(report.metrics, batch)
    assert float(report.metrics["ones"][0]) == report.micro_batches


@pytest.mark.parametrize("loss", [nn.functional.mse_loss, any_loss], ids=["one pass", "two passes"])
@pytest.mark.parametrize("operation", ["addmm", "tanh_backward"])
def test_a_retry_doubles_nothing(loss: Any, operation: str) -> None:
    batch, guard = plain_batch(), plain_guard(loss, metrics=sizes)
    with FaultIn(operation, times=1):
        report = guard.step(batch)
    assert (report.retries, report.micro_batches) == (1, 2)
    check(report.metrics, batch)
    check(plain_guard(loss, metrics=sizes).backward(batch).metrics, batch)


def test_each_step_starts_anew_and_a_forward_with_its_loss_passes_it_as_outputs() -> None:
    guard = plain_guard(
        None,
        forward=lambda model, batch: nn.functional.mse_loss(model(batch[0]), batch[1]),
        metrics=lambda loss, batch: {"loss": float(loss) * len(batch[0])},
        micro_batch=4,
    )
    for _ in range(2):
        report = guard.step(plain_batch())
        assert report.metrics["loss"] / 8 == pytest.approx(float(report.loss))


def test_metrics_without_memory_are_retried() -> None:
    with FaultAt([60]):
        report = plain_guard(metrics=sizes).step(plain_batch())
    check(report.metrics, plain_batch())


def test_metrics_see_no_gradients_and_must_be_a_dict() -> None:
    metrics = Metrics(lambda outputs, batch: {"grad": torch.is_grad_enabled()})
    metrics.add(None, None)
    assert metrics.sums == {"grad": False}
    assert Metrics().sums == {}
    with pytest.raises(UsageError, match=r"metrics returned a Tensor; return a dict"):
        plain_guard(metrics=lambda outputs, batch: outputs.sum()).step(plain_batch())


def test_a_metric_that_only_some_micro_batches_have_is_summed_over_those() -> None:
    def positives(outputs: Tensor, batch: Any) -> dict[str, int]:
        del outputs
        return {f"first {float(batch[0][0, 0]):.2f}": len(batch[0])}

    report = plain_guard(metrics=positives, micro_batch=4).step(plain_batch())
    assert list(report.metrics.values()) == [4, 4]
