"""What `training_step` logs and returns in several micro-batches, as it would for the whole batch. No Lightning."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

_METRIC_REDUCTIONS = {"SumMetric": "sum", "MaxMetric": "max", "MinMetric": "min"}  # of torchmetrics


@dataclass(frozen=True)
class LogCall:
    """One call of `self.log`, as Lightning passes it on.

    Attributes:
        fx: the hook that logged.
        name: the name of the value.
        value: a tensor or a metric of torchmetrics.
        options: further arguments, such as batch_size and reduce_fx.
        step_value: the value of a metric for this micro-batch.
    """

    fx: str
    name: str
    value: Any
    options: Mapping[str, Any]
    step_value: Any = None


@dataclass
class MicroBatchLog:
    """What one micro-batch logged and returned.

    Attributes:
        samples: its number of samples.
        calls: the calls of `self.log`.
        resets: hooks whose values of the last epoch are dropped first.
        loss: the loss that training_step returned, before it is divided; None if it returned none.
        extra: further entries of the dict that training_step returned.
    """

    samples: int
    calls: list[LogCall] = field(default_factory=list)
    resets: set[str] = field(default_factory=set)
    loss: Tensor | None = None
    extra: dict[str, Any] = field(default_factory=dict)


class _Results(dict[str, Any]):
    """Takes the place of Lightning's results during a micro-batch; it stays empty."""

    def __init__(self, log: MicroBatchLog) -> None:
        super().__init__()
        self._log = log

    def log(self, fx: str, name: str, value: Any, **options: Any) -> None:
        """Remember a call."""
        is_tensor = isinstance(value, Tensor)
        step_value = None if is_tensor else getattr(value, "_forward_cache", None)
        value = value.detach() if is_tensor and not options.get("enable_graph") else value
        self._log.calls.append(LogCall(fx, name, value, options, step_value))

    def reset(self, *, fx: str, **_: Any) -> None:
        """Remember that the values of a hook are dropped."""
        self._log.resets.add(fx)


class StepLog:
    """Collects what the micro-batches of a step log, and logs it once, when the step has succeeded.

    Args:
        trainer: the Trainer.

    Attributes:
        micro_batches: one entry per micro-batch of the current attempt; a retry empties the list.
    """

    def __init__(self, trainer: Any) -> None:
        self._connector, self._loop = trainer._logger_connector, trainer.fit_loop.epoch_loop  # noqa: SLF001
        self.micro_batches: list[MicroBatchLog] = []
        self._sizes = BatchSizes()

    @contextlib.contextmanager
    def capture(self, samples: int) -> Iterator[MicroBatchLog]:
        """Collect what is logged in one micro-batch."""
        results, current_fx = self._loop._results, self._connector._current_fx  # noqa: SLF001
        log = MicroBatchLog(samples)
        self._loop._results = _Results(log)  # noqa: SLF001
        try:
            yield log
        finally:
            self._loop._results, self._connector._current_fx = results, current_fx  # noqa: SLF001
        self._sizes.add(log)
        self.micro_batches.append(log)

    def commit(self, loss: Tensor) -> dict[str, Any]:
        """Log the values of the whole batch.

        Args:
            loss: the loss of the whole batch, as training_step would return it.

        Returns:
            The further outputs of training_step.
        """
        logs, self.micro_batches[:] = list(self.micro_batches), []
        results = self._loop._results  # noqa: SLF001
        for fx in set[str]().union(*(log.resets for log in logs)):
            results.reset(metrics=False, fx=fx)
        for entries in _group(logs):
            call = self._combine(entries, loss) if len(logs) > 1 else entries[0][1]
            results.log(call.fx, call.name, call.value, **call.options)
            self._connector._current_fx = call.fx  # noqa: SLF001
        if len(logs) == 1:
            return logs[0].extra
        returned = [log for log in logs if log.loss is not None]
        names = list(dict.fromkeys(name for log in returned for name in log.extra))
        return {name: _combine_extra(name, returned) for name in names}

    def _combine(self, entries: Sequence[tuple[MicroBatchLog, LogCall]], loss: Tensor) -> LogCall:
        """Return the call that the whole batch would have made."""
        first = entries[0][1]
        sizes = [call.options.get("batch_size") for _, call in entries]
        adds_up = None not in sizes and not self._sizes.is_constant(first)
        weights = [float(size or 0) for size in sizes] if adds_up else [log.samples for log, _ in entries]
        options = {**first.options, "batch_size": sum(filter(None, sizes)) if adds_up else sizes[0]}
        if not isinstance(first.value, Tensor):
            # Its state adds up by itself; this is its value for the batch.
            values = [call.step_value for _, call in entries]
            first.value._forward_cache = _step_value(first.value, values, weights)  # noqa: SLF001
            return LogCall(first.fx, first.name, first.value, options)
        is_loss = all(log.loss is not None and _is_same(call.value, log.loss) for log, call in entries)
        values = [call.value for _, call in entries]
        value = loss if is_loss else _reduce(values, weights, options.get("reduce_fx", "mean"))
        return LogCall(first.fx, first.name, value, options)


class BatchSizes:
    """The `batch_size` of each logged value: one that is the same for any number of samples is a constant."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], tuple[set[int], set[int]]] = {}

    def add(self, log: MicroBatchLog) -> None:
        """Remember up to two numbers of samples and batch sizes per value."""
        for call in log.calls:
            if call.options.get("batch_size") is None:
                continue
            for seen, number in zip(
                self._seen.setdefault((call.fx, call.name), (set(), set())),
                (log.samples, call.options["batch_size"]),
                strict=True,
            ):
                if len(seen) < 2:  # noqa: PLR2004  more say nothing new
                    seen.add(number)

    def is_constant(self, call: LogCall) -> bool:
        """Return True if the batch size doesn't depend on the number of samples."""
        samples, sizes = self._seen.get((call.fx, call.name), (set(), set()))
        return len(sizes) == 1 < len(samples)


def _group(logs: Sequence[MicroBatchLog]) -> list[list[tuple[MicroBatchLog, LogCall]]]:
    """Return the calls for the same value together, in the order in which they were first made."""
    groups: dict[tuple[str, str, int], list[tuple[MicroBatchLog, LogCall]]] = {}
    for log in logs:
        counts: dict[tuple[str, str], int] = {}
        for call in log.calls:
            number = counts[call.fx, call.name] = counts.get((call.fx, call.name), 0) + 1
            groups.setdefault((call.fx, call.name, number), []).append((log, call))
    return list(groups.values())


def _reduce(values: Sequence[Tensor], weights: Sequence[float], reduction: Any) -> Any:
    """Combine values as Lightning combines those of batches: by a name or by a function of that name."""
    name = getattr(reduction, "__name__", str(reduction)).lower()
    if name not in {"sum", "max", "min"}:
        return _weighted_mean(values, weights)
    stacked = torch.stack(list(values))
    return stacked.sum(0) if name == "sum" else stacked.amax(0) if name == "max" else stacked.amin(0)


def _step_value(metric: Any, values: Sequence[Any], weights: Sequence[float]) -> Any:
    """Return a metric's value for the whole batch; for one that is no sum, maximum or mean it is an approximation."""
    reduction = _METRIC_REDUCTIONS.get(type(metric).__name__, "mean")
    return _reduce(values, weights, reduction) if all(isinstance(value, Tensor) for value in values) else values[-1]


def _weighted_mean(values: Sequence[Any], weights: Sequence[float]) -> Any:
    """Return the mean of tensors of one shape, or the last value of others."""
    shapes = {tuple(value.shape) if isinstance(value, Tensor) else None for value in values}
    if None in shapes or len(shapes) > 1:
        return values[-1]
    total = math.fsum(weights) or 1.0
    terms = [value * (weight / total) for value, weight in zip(values, weights, strict=True)]
    return torch.stack(terms).sum(0)


def _is_same(value: Tensor, other: Tensor) -> bool:
    """Return True if a logged value is the loss; Lightning logs a copy. That of a part without labels is NaN."""
    if value.shape != other.shape or value.dtype != other.dtype or value.device != other.device:
        return False
    return bool(torch.isclose(value, other.detach(), rtol=0, atol=0, equal_nan=True).all())


def _combine_extra(name: str, logs: Sequence[MicroBatchLog]) -> Any:
    """Join outputs along the samples; scalars are averaged, and of others the last one is returned."""
    values = [log.extra[name] for log in logs if name in log.extra]
    sizes = [log.samples for log in logs if name in log.extra]
    if all(isinstance(value, Tensor) for value in values):
        values = [value.detach() for value in values]
        if all(value.dim() and len(value) == size for value, size in zip(values, sizes, strict=True)):
            return torch.cat(values)
        return _weighted_mean(values, sizes) if values[0].is_floating_point() else values[-1]
    if all(isinstance(value, list) and len(value) == size for value, size in zip(values, sizes, strict=True)):
        return [item for value in values for item in value]
    if all(isinstance(value, float) for value in values):
        return math.fsum(value * size for value, size in zip(values, sizes, strict=True)) / sum(sizes)
    return values[-1]


@contextlib.contextmanager
def silent_loggers(trainer: Any, dummy_class: Any) -> Iterator[None]:
    """Replace the loggers of a Trainer by others of a class that logs nothing; names and folders stay.

    Args:
        trainer: the Trainer.
        dummy_class: Lightning's DummyLogger.
    """
    loggers = trainer.loggers
    trainer.loggers = [_silent_logger(logger, dummy_class) for logger in loggers]
    try:
        yield
    finally:
        trainer.loggers = loggers


def _silent_logger(logger: Any, dummy_class: Any) -> Any:
    def same(name: str) -> property:
        return property(lambda _: getattr(logger, name))

    names = ("name", "version", "root_dir", "save_dir", "log_dir")
    return type(dummy_class.__name__, (dummy_class,), {name: same(name) for name in names if hasattr(logger, name)})()


class MetricLists:
    """The lists in metrics of torchmetrics, such as all predictions of an epoch; the guard restores their tensors.

    Args:
        module: the module that has the metrics.
    """

    def __init__(self, module: nn.Module) -> None:
        self._metrics: list[Any] = [item for item in module.modules() if hasattr(item, "_defaults")]

    def state_dict(self) -> dict[str, Any]:
        """Return the lists."""
        lists = [(metric, name) for metric in self._metrics for name in metric._defaults]  # noqa: SLF001
        values = [(metric, name, getattr(metric, name, None)) for metric, name in lists]
        return {"lists": _Uncopied([(*key, list(value)) for *key, value in values if isinstance(value, list)])}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Set the lists."""
        for metric, name, items in state["lists"].items:
            setattr(metric, name, list(items))


@dataclass(frozen=True)
class _Uncopied:
    """Lists whose tensors are never written to, so that a snapshot need not copy them."""

    items: list[Any]

    def __deepcopy__(self, memo: object) -> _Uncopied:
        return self
