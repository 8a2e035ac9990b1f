"""Ultralytics: `add_guard`, with which training repeats a batch that doesn't fit in smaller micro-batches.

    from oomph.integrations.ultralytics import add_guard

    model = YOLO("yolov8n.yaml")
    add_guard(model, budget="8GiB", record="run.jsonl")
    model.train(data="coco8.yaml", batch=64)

It needs Ultralytics 8.4 or newer; importing this file imports Ultralytics.
"""

from __future__ import annotations

import contextlib
import logging
import os
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..adapters import FrameworkJob
from ..errors import RetriesExhausted, UsageError
from ..errors import describe as describe_error
from ..failures import classify_exception
from ..monitor import watch
from ..planner import Plan
from ..recovery import Guard
from ..recovery import guard as guard_training
from ._guard_options import check_budget_and_record, check_options
from ._micro_batch_plan import plan_model, with_plan
from ._versions import check_version

try:
    import ultralytics
except ModuleNotFoundError as missing:
    raise UsageError(f"the package {missing.name} isn't installed", "run `pip install ultralytics`") from None

check_version("ultralytics", ultralytics.__version__, "8.4")

from ultralytics.engine.model import Model  # noqa: E402  of a version that was checked
from ultralytics.engine.trainer import BaseTrainer  # noqa: E402

from ._ultralytics_job import job_of_model, job_of_trainer  # noqa: E402
from ._ultralytics_loss import BatchLoss  # noqa: E402

__all__ = ["TrainingGuard", "add_guard", "describe"]

_log = logging.getLogger("oomph")
_OPTIONS = ("inexact", "micro_batch", "cooldown_steps", "snapshot", "nvtx")
_PRECISIONS = {torch.float16: "amp-fp16", torch.bfloat16: "amp-bf16"}


@dataclass
class TrainingGuard:
    """The guard of a model's training runs, which `add_guard` returns.

    Attributes:
        record: where to write the Record.
        budget: memory that training may use.
        signals: finish the batch, save and stop on Ctrl-C and SIGTERM.
        options: further options of `oomph.guard`.
        guard: the guard of the current or last run; None before its first batch.
    """

    record: str | os.PathLike[str] | None = None
    budget: int | str | None = None
    signals: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    guard: Guard | None = None

    def __post_init__(self) -> None:
        check_options(self.options, got="guard_options contains", owner="add_guard", allowed=_OPTIONS)
        check_budget_and_record(self.budget, self.record)
        self._stack = contextlib.ExitStack()

    def start(self, trainer: Any) -> None:
        """Guard a run that is about to begin; the callback `on_train_start`.

        Raises:
            CannotFit: not even the smallest micro-batch fits into the budget.
            UsageError: the setup can't be guarded.
        """
        self.close()
        _check_supported(trainer)
        loss = BatchLoss(trainer.model)
        options: dict[str, Any] = {**loss.options(), **self.options}
        with contextlib.ExitStack() as stack:
            if self.record is not None:
                options["recorder"] = stack.enter_context(watch(self.record))
            if self.budget is not None:
                options = with_plan(options, _plan(trainer, self.budget), options.get("recorder"))
            run = _GuardedLoss(trainer, loss, options)
            # An attribute of this object hides the method of its class.
            trainer.model.loss = lambda batch, preds=None: self._loss(run, batch, preds)
            stack.callback(_remove_loss, trainer.model)
            self._stack = stack.pop_all()

    def close(self, trainer: Any = None) -> None:
        """Close the guard and the Record; the callbacks `on_train_end` and `teardown`."""
        del trainer
        self._stack.close()

    def _loss(self, run: _GuardedLoss, batch: Any, preds: Any) -> tuple[Tensor, Any]:
        if self.guard is not run.guard or run.guard is None:
            self.guard = run.start()
            self._stack.callback(self.guard.close)
            if self.signals:
                self._stack.enter_context(self.guard.signals())
        return run(batch, preds)


class _GuardedLoss:
    """The loss of a model whose gradients are computed at once, in as many micro-batches as memory allows.

    Args:
        trainer: the trainer.
        loss: its loss.
        options: those of the guard.
    """

    def __init__(self, trainer: Any, loss: BatchLoss, options: Mapping[str, Any]) -> None:
        self._trainer, self._loss, self._options = trainer, loss, options
        self.guard: Guard | None = None

    def start(self) -> Guard:
        """Create the guard, in the precision of the trainer's first batch."""
        trainer, device = self._trainer, self._trainer.device
        is_mixed = torch.is_autocast_enabled(device.type)
        self.guard = guard_training(
            model=trainer.model,
            optimizer=trainer.optimizer,
            device=device,
            precision=_PRECISIONS.get(torch.get_autocast_dtype(device.type)) if is_mixed else None,
            scaler=trainer.scaler if trainer.scaler.is_enabled() else None,
            checkpoint=lambda _: save_emergency(trainer),
            **self._options,
        )
        return self.guard

    def __call__(self, batch: Any, preds: Any) -> tuple[Tensor, Any]:
        """Return the loss of a batch and its components; the gradients are in the parameters already.

        Raises:
            RetriesExhausted: no fallback made the batch fit; the state before it was saved.
        """
        if preds is not None or self.guard is None:
            raise UsageError("the loss of given predictions can't be guarded", "call the model's class method loss")
        self._loss.begin(batch)
        try:
            with torch.autocast(self._trainer.device.type, enabled=False):  # of backward; the guard enables its own
                report = self.guard.backward(batch)
        except RuntimeError as error:
            if classify_exception(error) is None:
                raise
            # The trainer would continue with half of the batch.
            raise RetriesExhausted(
                f"a batch of {len(batch['img'])} images failed ({describe_error(error, 200)})", "use smaller images"
            ) from error
        # The trainer calls backward on what is returned, which reaches no parameter.
        return report.loss.detach().clone().requires_grad_(), self._loss.items(report.metrics)


def add_guard(
    model: Model,
    *,
    record: str | os.PathLike[str] | None = None,
    budget: int | str | None = None,
    signals: bool = False,
    guard_options: Mapping[str, Any] | None = None,
) -> TrainingGuard:
    """Guard the training runs of a model against running out of memory.

    A batch that doesn't fit is repeated in smaller micro-batches. The batch size, the number of updates and the
    schedule stay as they are, and the trainer's own reduction of the batch in the first epoch doesn't happen.

    Args:
        model: a YOLO object.
        record: where to write the Record, for `oomph watch`, `oomph report` and `oomph explain`.
        budget: bytes of the device, or a text such as "8GiB": the micro-batch is planned for it before training. On the
            CPU, of this process.
        signals: finish the batch, save and stop on Ctrl-C and SIGTERM.
        guard_options: further options of `oomph.guard`: inexact, micro_batch, cooldown_steps, snapshot, nvtx.

    Returns:
        The guard of the runs; its `guard` is the `oomph.Guard` of the last one.

    Raises:
        UsageError: it is not a YOLO object, or an option is unknown.
    """
    if not isinstance(model, Model):
        raise UsageError(f"a {type(model).__name__} can't be guarded", 'pass a YOLO object, such as YOLO("yolov8n.pt")')
    training = TrainingGuard(record, budget, signals, dict(guard_options or {}))
    model.add_callback("on_train_start", training.start)
    for event in ("on_train_end", "teardown"):
        model.add_callback(event, training.close)
    model.train = types.MethodType(_train, model)  # it hides the method of its class; a copy of the model gets its own
    return training


def _train(model: Any, trainer: Any = None, **arguments: Any) -> Any:
    """Train, but refuse several GPUs here: Ultralytics starts a process for each, and calls no callback before that."""
    trainer_class = trainer or model.task_map[model.task]["trainer"]

    def create(*args: Any, **kwargs: Any) -> Any:
        trainer = trainer_class(*args, **kwargs)
        callbacks = trainer.callbacks["on_train_start"]  # without the guard's after model.reset_callbacks()
        if any(isinstance(getattr(callback, "__self__", None), TrainingGuard) for callback in callbacks):
            _check_devices(trainer)
        return trainer

    return type(model).train(model, trainer=create, **arguments)


def describe(source: Any) -> FrameworkJob:
    """Return what a YOLO object or a trainer trains, and how, for `oomph.predict(model)` and `oomph.plan(model)`.

    Raises:
        UsageError: it is something else, or its task can't be predicted.
    """
    if isinstance(source, Model):
        return job_of_model(source)
    if isinstance(source, BaseTrainer):
        return job_of_trainer(source)
    raise UsageError(f"a {type(source).__name__} can't be predicted alone", "pass the YOLO object that trains it")


def save_emergency(trainer: Any) -> Path:
    """Write the trainer's checkpoint beside its last.pt, which stays as it is, and return its path.

    A resumed run starts with the epoch that was interrupted. The first epoch can't be resumed by Ultralytics: its rest
    is skipped.
    """
    path = Path(trainer.wdir) / "emergency.pt"
    changed = {"last": path, "best": path, "save_period": -1, "epoch": max(trainer.epoch - 1, 0)}
    with _attributes(trainer, changed):
        trainer.save_model()
    return path


@contextlib.contextmanager
def _attributes(target: Any, values: Mapping[str, Any]) -> Iterator[None]:
    before = {name: getattr(target, name) for name in values}
    vars(target).update(values)
    try:
        yield
    finally:
        vars(target).update(before)


def _remove_loss(model: Any) -> None:
    vars(model).pop("loss", None)


def _plan(trainer: Any, budget: int | str) -> Plan:
    averages = [] if trainer.ema is None else trainer.ema.ema.state_dict().values()
    return plan_model(
        job_of_trainer(trainer),
        trainer.device,
        budget,
        trainer.model,
        accumulates=trainer.accumulate > 1,
        held=sum(tensor.nbytes for tensor in averages),
    )


def _check_devices(trainer: Any) -> None:
    if trainer.world_size > 1:
        raise UsageError("training on several GPUs can't be guarded", "pass one device=, or train without add_guard")


def _check_supported(trainer: Any) -> None:
    _check_devices(trainer)  # again, for a trainer that got the callbacks of a model
    if trainer.args.compile:
        raise UsageError("a compiled model can't be guarded", "pass compile=False")
