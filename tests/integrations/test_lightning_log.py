"""How logged values and outputs of micro-batches combine; Lightning itself is not needed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from oomph.integrations._lightning_log import MetricLists, StepLog


class Results(dict[str, Any]):
    """Keeps what is logged in the end."""

    def __init__(self) -> None:
        super().__init__()
        self.resets: list[str] = []

    def log(self, fx: str, name: str, value: Any, **options: Any) -> None:
        del fx
        self[name] = (float(value), options.get("batch_size"))

    def reset(self, *, fx: str, metrics: bool) -> None:
        assert metrics is False
        self.resets.append(fx)


def step_log() -> tuple[StepLog, Any]:
    loop = SimpleNamespace(_results=Results())
    trainer = SimpleNamespace(
        _logger_connector=SimpleNamespace(_current_fx=None), fit_loop=SimpleNamespace(epoch_loop=loop)
    )
    return StepLog(trainer), loop


def run(log: StepLog, loop: Any, samples: int, returned: Tensor, extra: Any = None, **values: Any) -> None:
    with log.capture(samples) as captured:
        for name, (value, options) in values.items():
            loop._results.log("training_step", name, torch.as_tensor(value), **options)
        loop._results.reset(metrics=False, fx="training_step")
        captured.loss, captured.extra = returned.detach(), extra or {}


def test_values_are_combined_by_their_reduction_and_logged_once() -> None:
    log, loop = step_log()
    results = loop._results
    for samples, value in ((3, 1.0), (1, 5.0)):
        loss = torch.tensor(value + 1)  # other values are no copies of it
        reductions = {name: (value, {"reduce_fx": getattr(torch, name)}) for name in ("mean", "sum", "max", "min")}
        run(log, loop, samples, loss, loss=(loss, {"reduce_fx": "mean"}), **reductions)
        assert loop._results is results
        assert not results
    log.commit(torch.tensor(1.75))
    assert results == {
        "loss": (1.75, None), "mean": (2.0, None), "sum": (6.0, None), "max": (5.0, None), "min": (1.0, None)
    }  # fmt: skip
    assert results.resets == ["training_step"]
    assert log.micro_batches == []


def test_the_logged_loss_is_that_of_the_whole_batch_although_a_part_has_no_labels() -> None:
    log, loop = step_log()
    for samples, loss in ((3, 1.5), (1, float("nan"))):
        run(log, loop, samples, torch.tensor(loss), train_loss=(torch.tensor(loss).clone(), {"reduce_fx": "mean"}))
    log.commit(torch.tensor(1.5))
    assert loop._results["train_loss"] == (1.5, None)


class SumMetric:
    """Has the name and the cache of torchmetrics' sum."""

    def __init__(self) -> None:
        self._forward_cache: Any = None

    def __float__(self) -> float:
        return float(self._forward_cache)


def test_the_value_of_a_sum_for_a_step_is_that_of_all_micro_batches() -> None:
    log, loop = step_log()
    metric = SumMetric()
    for samples, value in ((3, 2.0), (1, 5.0)):
        with log.capture(samples):
            metric._forward_cache = torch.tensor(value)
            loop._results.log("training_step", "count", metric, reduce_fx="mean")
    log.commit(torch.tensor(0.0))
    assert loop._results["count"] == (7.0, None)


@pytest.mark.parametrize(("sizes", "batch_size", "mean"), [((30, 10), 40, 2.0), ((4, 4), 4, 2.0), ((9, 3), 12, 2.0)])
def test_a_batch_size_that_never_changes_is_a_constant(sizes: tuple[int, int], batch_size: int, mean: float) -> None:
    log, loop = step_log()
    for samples, size, value in zip((3, 1), sizes, (1.0, 5.0), strict=True):
        run(log, loop, samples, torch.tensor(0.0), value=(value, {"reduce_fx": "mean", "batch_size": size}))
    log.commit(torch.tensor(0.0))
    assert loop._results["value"] == (mean, batch_size)


def test_outputs_are_joined_along_the_samples() -> None:
    log, loop = step_log()
    for samples, value in ((3, 1.0), (1, 5.0)):
        extra = {
            "rows": torch.full((samples, 2), value), "scalar": torch.tensor(value), "number": value,
            "names": [str(value)] * samples, "other": value > 1,
        }  # fmt: skip
        run(log, loop, samples, torch.tensor(value), extra)
    outputs = log.commit(torch.tensor(2.0))
    assert outputs["rows"].tolist() == [[1, 1], [1, 1], [1, 1], [5, 5]]
    assert (float(outputs["scalar"]), outputs["number"], outputs["other"]) == (2.0, 2.0, True)
    assert outputs["names"] == ["1.0", "1.0", "1.0", "5.0"]


def test_an_error_in_a_micro_batch_logs_nothing() -> None:
    log, loop = step_log()
    results = loop._results

    def fail() -> None:
        with log.capture(2):
            loop._results.log("training_step", "value", torch.tensor(1.0))
            raise MemoryError

    with pytest.raises(MemoryError):
        fail()
    assert loop._results is results
    assert log.micro_batches == []


def test_lists_of_metrics_are_restored_without_copying_their_tensors() -> None:
    class Metric(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self._defaults: dict[str, Any] = {"rows": []}
            self.rows = [torch.ones(1)]

    metric = Metric()
    lists, first = MetricLists(torch.nn.Sequential(metric)), metric.rows[0]
    state = lists.state_dict()
    metric.rows.append(torch.zeros(1))
    lists.load_state_dict(state)
    assert len(metric.rows) == 1
    assert metric.rows[0] is first
