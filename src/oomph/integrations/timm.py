"""timm: `guard`, training steps of its train.py that are repeated with less memory instead of failing.

    from oomph.integrations.timm import guard

    with guard(task, optimizer, loss_scaler=loss_scaler, clip_grad=args.clip_grad, record="run.jsonl") as guarded:
        for input, target in loader:
            loss = guarded.step(input, target).loss

It needs timm 1.0.20 or newer, which is not imported here.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ..adapters import FrameworkJob
from ..batch import count_samples
from ..errors import UsageError
from ..job import Job
from ..monitor import Recorder, watch
from ..planner import Plan
from ..recovery import Guard, StepReport
from ..recovery import guard as guard_training
from ..settings import Settings, environment_allocator
from ._guard_options import check_budget_and_record, check_options
from ._micro_batch_plan import plan_model, with_plan
from ._timm_model import TrainedModel, Update
from ._versions import check_version

__all__ = ["TimmGuard", "describe", "guard"]

_PRECISIONS = {torch.bfloat16: "amp-bf16", torch.float16: "amp-fp16"}


@dataclass(frozen=True)
class _GuardConfig:
    """The options of `guard` that don't concern the update."""

    saver: Any
    record: str | os.PathLike[str] | None
    budget: int | str | None
    options: Mapping[str, Any]

    def __post_init__(self) -> None:
        check_options(self.options, got="guard got", owner="timm's loop")
        check_budget_and_record(self.budget, self.record)


def guard(  # noqa: PLR0913  options by name
    task_or_model: nn.Module,
    optimizer: Optimizer,
    *,
    loss_fn: Callable[[Any, Any], Tensor] | None = None,
    scheduler: Any = None,
    loss_scaler: Any = None,
    model_ema: Any = None,
    amp_autocast: Callable[[], Any] = contextlib.nullcontext,
    clip_grad: float | None = None,
    clip_mode: str = "norm",
    saver: Any = None,
    record: str | os.PathLike[str] | None = None,
    budget: int | str | None = None,
    **options: Any,
) -> TimmGuard:
    """Guard the training steps of timm's train.py, or of a loop like it.

    Args:
        task_or_model: a task of `timm.task`, or a model (also a DistributedDataParallel).
        optimizer: the optimizer.
        loss_fn: `loss_fn(output, target)` returns the loss of a model; a task has its own.
        scheduler: timm's scheduler, whose `step_update` is called after each update; or call it yourself.
        loss_scaler: timm's NativeScaler.
        model_ema: timm's EMA of a model; a task has its own.
        amp_autocast: creates the context in which the model runs, as in train.py.
        clip_grad: largest gradient, by `clip_mode`.
        clip_mode: "norm", "value" or "agc", as in train.py.
        saver: timm's CheckpointSaver, whose `save_recovery` is called when a step doesn't fit at all.
        record: write a Record of the run to this file, for `oomph watch`, `oomph report` and `oomph explain`.
        budget: bytes of the device that may be used, or a text such as "8GiB"; on the CPU, of this process. The
            micro-batch is planned from the first batch.
        options: further options of `oomph.guard`: reduction, inexact, split, samples, micro_batch, extra_state,
            cooldown_steps, rank_timeout, snapshot, nvtx.

    Raises:
        UsageError: timm is too old, or something can't be guarded.
    """
    check_version("timm", getattr(sys.modules.get("timm"), "__version__", "0"), "1.0.20")
    if saver is not None and not hasattr(saver, "save_recovery"):
        raise UsageError(f"saver={saver!r} can't save the run", "pass timm's CheckpointSaver")
    config = _GuardConfig(saver, record, budget, options)
    if getattr(optimizer, "is_second_order", False):
        raise UsageError(
            f"{type(optimizer).__name__} needs second derivatives, which can't be computed in micro-batches",
            "use another optimizer",
        )
    if loss_scaler is not None and not isinstance(getattr(loss_scaler, "_scaler", None), torch.amp.GradScaler):
        raise UsageError(f"a loss_scaler of type {type(loss_scaler).__name__} can't be guarded", "use NativeScaler")
    trained = TrainedModel(task_or_model, loss_fn, amp_autocast)
    update = Update(trained, optimizer, loss_scaler, model_ema, scheduler, clip_grad, clip_mode)
    return TimmGuard(update, config)


class TimmGuard:
    """Runs guarded steps of timm's loop; created by `guard`. As a context manager it is closed at the end.

    Attributes:
        num_updates: number of updates, as timm counts them; `start_epoch` sets it.
        guard: the guard; None before the first step.
    """

    def __init__(self, update: Update, config: _GuardConfig) -> None:
        self._update, self._config, self._trained = update, config, update.trained
        self._stack = contextlib.ExitStack()
        self._recorder: Recorder | None = None
        if config.record is not None and _is_first_rank():
            self._recorder = self._stack.enter_context(watch(config.record))
        self._epoch = self._updates_before = 0
        self.num_updates = 0
        self.guard: Guard | None = None

    def start_epoch(self, epoch: int, num_updates: int) -> None:
        """Set where training is, for the step of the EMA and the schedule and for the name of a recovery file.

        Args:
            epoch: the number of the epoch.
            num_updates: updates before it: `epoch * updates_per_epoch` in train.py.
        """
        self._epoch, self._updates_before = epoch, num_updates
        self.num_updates = num_updates

    def step(
        self,
        input: Any,  # noqa: A002  as in timm's loop
        target: Any,
        *,
        need_update: bool = True,
        accum_steps: int = 1,
        scale: float = 1.0,
        metric: float | None = None,
    ) -> StepReport:
        """Train on a batch: forward, loss, backward, and with `need_update` clipping, update, EMA and schedule.

        Args:
            input: the inputs of the model.
            target: the targets of the loss.
            need_update: False to only accumulate gradients.
            accum_steps: number of batches in an update, by which the loss is divided.
            scale: a further factor of the gradients, for batches of different sizes.
            metric: what a scheduler that needs a metric receives.

        Returns:
            The report; its loss is that of the whole batch, divided by `accum_steps`.

        Raises:
            CannotFit: not even the smallest micro-batch fits into the budget.
            RetriesExhausted: the batch doesn't fit; the last update was saved by `saver`.
        """
        batch = (input, target)
        guard = self.guard or self._start_guard(batch, accum_steps)

        def forward(module: nn.Module, part: Any) -> Tensor:
            loss = self._trained.loss(module, part)
            return loss / accum_steps if accum_steps > 1 else loss

        report = guard.backward(batch, forward=forward, scale=scale, sync=need_update)
        if need_update:
            self.num_updates += 1
            self._update.run(self.num_updates, metric)
        return report

    def close(self) -> None:
        """End the Record, and tell other ranks that this one ended normally."""
        self._stack.close()

    def __enter__(self) -> TimmGuard:  # noqa: PYI034  Self came with Python 3.11
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.__exit__(*error)  # type: ignore[arg-type]

    def _start_guard(self, batch: Any, accum_steps: int) -> Guard:
        config, trained, scaler = self._config, self._trained, self._update.loss_scaler
        options = dict(config.options)
        if config.budget is not None:
            options = with_plan(options, self._plan(batch, accum_steps, config.budget), self._recorder)
        dtype = trained.autocast_dtype
        guard = guard_training(
            model=trained.module,
            optimizer=self._update.optimizer,
            # Without timm's scaler, float16 is not scaled.
            scaler=torch.amp.GradScaler(enabled=False) if scaler is None else scaler._scaler,  # noqa: SLF001
            precision=None if dtype is None else _PRECISIONS.get(dtype),  # for its tolerances; amp_autocast casts, too
            checkpoint=None if config.saver is None else lambda _: self._save(),
            recorder=self._recorder,
            **options,
        )
        self._stack.callback(guard.close)
        self.guard = guard
        return guard

    def _plan(self, batch: Any, accum_steps: int, budget: int | str) -> Plan:
        trained = self._trained
        described = _describe(trained, self._update.optimizer, batch, accum_steps)
        return plan_model(described, trained.device, budget, trained.source, accumulates=accum_steps > 1)

    def _save(self) -> Path:
        """Write timm's recovery checkpoint of the last update, and return its path."""
        saver = self._config.saver
        saver.save_recovery(self._epoch, batch_idx=self.num_updates - self._updates_before)
        return Path(saver.curr_recovery_file)


def describe(
    task_or_model: nn.Module,
    optimizer: Optimizer,
    batch: tuple[Any, Any],
    *,
    loss_fn: Callable[[Any, Any], Tensor] | None = None,
    amp_autocast: Callable[[], Any] = contextlib.nullcontext,
    accum_steps: int = 1,
) -> FrameworkJob:
    """Return what timm's loop trains, and how: `oomph.predict(describe(task, optimizer, batch))`.

    Args:
        task_or_model: a task of `timm.task`, or a model.
        optimizer: the optimizer.
        batch: inputs and targets of one batch.
        loss_fn: the loss of a model.
        amp_autocast: creates the context in which the model runs, as in train.py.
        accum_steps: number of batches in an update.
    """
    return _describe(TrainedModel(task_or_model, loss_fn, amp_autocast), optimizer, batch, accum_steps)


def _describe(trained: TrainedModel, optimizer: Optimizer, batch: Any, accum_steps: int) -> FrameworkJob:
    samples = count_samples(batch)
    dtype = trained.autocast_dtype
    is_wrapped = trained.module is not getattr(trained.module, "module", trained.module)
    # The copy of a task that is traced contains its teacher; one for several ranks is traced without its wrapper.
    model: Any = trained.module.module if is_wrapped else trained.source

    def step(model: Any, batch: Any) -> Tensor:
        if is_wrapped or not trained.is_task:
            return trained.loss(model, batch)
        with trained.amp_autocast():
            loss: Tensor = model(*batch)["loss"]
        return loss

    settings = Settings(
        batch=samples * accum_steps,
        micro_batch=samples if accum_steps > 1 else None,
        precision="fp32" if dtype is None else _PRECISIONS.get(dtype, "fp32"),
        allocator=environment_allocator(),
    )
    return FrameworkJob(Job.of(model, batch, optimizer=optimizer, step=step, samples=samples), settings)


def _is_first_rank() -> bool:
    distributed = torch.distributed
    return not (distributed.is_available() and distributed.is_initialized()) or distributed.get_rank() == 0
