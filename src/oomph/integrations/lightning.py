"""Lightning: `GuardCallback`, with which training steps are repeated with less memory instead of failing.

    from oomph.integrations.lightning import GuardCallback

    trainer = Trainer(callbacks=[GuardCallback(record="run.jsonl", budget="8GiB")])
    trainer.fit(model, loader)

It works with the packages lightning and pytorch_lightning, 2.5 or newer; importing this file imports the one that is
loaded already, or else the one that is installed.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib
import importlib.util
import logging
import os
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..batch import count_samples
from ..errors import UsageError
from ..monitor import Recorder, watch
from ..planner import Plan
from ..recovery import Guard, StepReport
from ..recovery import guard as guard_training
from ._guard_options import check_budget_and_record, check_options, with_extra_state
from ._lightning_checks import check_supported
from ._lightning_job import PRECISIONS, describe, describe_module, package_of
from ._lightning_log import MetricLists, MicroBatchLog, StepLog, silent_loggers
from ._micro_batch_plan import plan_model, with_plan
from ._versions import check_version

__all__ = ["GuardCallback", "describe", "manual_backward"]

_logger = logging.getLogger("oomph")
_PACKAGES = {"lightning": "lightning.pytorch", "pytorch_lightning": "pytorch_lightning"}


def _load_packages() -> list[Any]:
    """Return the packages that are loaded, or else the first one that is installed."""
    loaded = [name for name in _PACKAGES if name in sys.modules]
    names = loaded or [name for name in _PACKAGES if importlib.util.find_spec(name) is not None][:1]
    if not names:
        raise UsageError("the package lightning isn't installed", "run `pip install lightning`")
    for name in names:
        check_version(name, importlib.import_module(name).__version__, "2.5")
    return [importlib.import_module(_PACKAGES[name]) for name in names]


_Callback: Any = type("_Callback", tuple(package.Callback for package in _load_packages()), {})


@dataclass(frozen=True)
class _GuardConfig:
    """The options of a GuardCallback, which documents them."""

    record: str | os.PathLike[str] | None = None
    budget: int | str | None = None
    checkpoint: str | os.PathLike[str] | None = None
    signals: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        arguments = ("record", "budget", "checkpoint", "signals")
        check_options(self.options, got="GuardCallback got", owner="the Trainer", beside=arguments)
        check_budget_and_record(self.budget, self.record)
        if self.checkpoint is not None and not _is_file_name(self.checkpoint):
            raise UsageError(f"checkpoint={self.checkpoint!r} is no file", 'name one, such as "emergency.ckpt"')


def _is_file_name(value: object) -> bool:
    return isinstance(value, (str, os.PathLike)) and not Path(value).is_dir()


class _GuardedFit:
    """One call of `fit()`: its Record, its guard, its closures and its emergency checkpoint.

    Args:
        trainer: the Trainer, with its strategy set up.
        config: the options.

    Attributes:
        guard: the guard of the module; None before the first batch.
    """

    def __init__(self, trainer: Any, config: _GuardConfig) -> None:
        self._trainer, self._config = trainer, config
        self._module = trainer.lightning_module
        self._loop = trainer.fit_loop.epoch_loop.automatic_optimization
        self._log = StepLog(trainer)
        self._stack = contextlib.ExitStack()
        self._recorder: Recorder | None = None
        self._loader_states: Any = None
        self._position: dict[str, int] = {}
        self.is_saving = False
        self.guard: Guard | None = None

    def start(self) -> None:
        """Begin the Record, and replace the closures of automatic optimization."""
        if self._config.record is not None and self._trainer.is_global_zero:
            self._recorder = self._stack.enter_context(watch(self._config.record))
        self._loop._make_closure = self._make_closure  # noqa: SLF001  of this Trainer only
        self._stack.callback(delattr, self._loop, "_make_closure")

    def close(self, error: BaseException | None = None) -> None:
        """End the Record, and leave the Trainer as it was."""
        if error is None and self.guard is None and not self._module.automatic_optimization:
            _logger.warning(
                "Nothing was guarded: training_step doesn't call manual_backward of oomph.integrations.lightning."
            )
        self._stack.__exit__(None if error is None else type(error), error, None)

    def _make_closure(self, kwargs: OrderedDict[str, Any], optimizer: Any, batch_idx: int) -> Any:
        """Return Lightning's closure, with a step that computes the gradients, too."""
        loop = self._loop
        closure = type(loop)._make_closure(loop, kwargs, optimizer, batch_idx)  # noqa: SLF001
        zero_grad = loop._make_zero_grad_fn(batch_idx, optimizer)  # noqa: SLF001
        if loop._skip_backward:  # noqa: SLF001  such as in the last epoch of stochastic weight averaging
            return closure
        return type(closure)(functools.partial(self._step, kwargs, zero_grad))

    def _step(self, kwargs: OrderedDict[str, Any], zero_grad: Callable[[], None] | None) -> Any:
        """Run training_step and backward of a batch, and return what Lightning's closure expects of the step."""
        if zero_grad is not None:
            zero_grad()
            self.remember_position()
        batch, *others = kwargs.values()
        forward = functools.partial(self._training_step, others=tuple(others))
        is_update = not self._trainer.fit_loop._should_accumulate()  # noqa: SLF001
        report = self._backward(batch, forward, sync=is_update)
        is_skipped = all(log.loss is None for log in self._log.micro_batches)
        steps = self._trainer.accumulate_grad_batches
        extra = self._log.commit(report.loss * steps)
        if is_skipped:
            return self._loop.output_result_cls(None)
        self._call_backward_hooks(report.loss)
        return self._loop.output_result_cls(report.loss, extra=extra)

    def _training_step(self, module: Any, batch: Any, *, others: tuple[Any, ...]) -> Tensor:
        """Return the loss of a micro-batch, divided as Lightning divides it."""
        trainer, strategy = self._trainer, self._trainer.strategy
        call = importlib.import_module(f"{package_of(self._loop)}.trainer.call")
        wrapper, hook = strategy.model, module._current_fx_name  # noqa: SLF001
        strategy.model = module  # the guard averages gradients over the ranks, not DDP
        try:
            with self._captured(batch) as log:
                outputs = call._call_strategy_hook(trainer, "training_step", batch, *others)  # noqa: SLF001
                result = self._loop.output_result_cls.from_training_step_output(
                    outputs, trainer.accumulate_grad_batches
                )
                log.extra = result.extra
                if result.closure_loss is not None:
                    log.loss = (outputs["loss"] if isinstance(outputs, Mapping) else outputs).detach()
        finally:
            strategy.model, module._current_fx_name = wrapper, hook  # noqa: SLF001
        if result.closure_loss is None:
            if trainer.world_size > 1:
                raise UsageError("training_step returned None on one of several ranks", "return a loss of 0 instead")
            return torch.zeros((), device=strategy.root_device, requires_grad=True)  # no parameter gets a gradient
        loss: Tensor = result.closure_loss
        return loss

    def backward(self, batch: Any, forward: Callable[[Any, Any], Tensor], *, sync: bool = True) -> Tensor:
        """Compute the gradients of a batch in manual optimization, and return its loss."""

        def captured(module: Any, part: Any) -> Tensor:
            with self._captured(part) as log:
                loss = forward(module, part)
                log.loss = loss.detach()
            return loss

        report = self._backward(batch, captured, sync=sync)
        self._log.commit(report.loss)
        self._call_backward_hooks(report.loss)
        return report.loss

    @contextlib.contextmanager
    def _captured(self, batch: Any) -> Iterator[MicroBatchLog]:
        """Collect what a micro-batch logs; what it logs in the check of the loss is dropped, by its loggers, too."""
        silence: AbstractContextManager[None] = contextlib.nullcontext()
        if self.guard is not None and self.guard.is_checking:
            loggers = importlib.import_module(f"{package_of(self._loop)}.loggers.logger")
            silence = silent_loggers(self._trainer, loggers.DummyLogger)
        with silence, self._log.capture(self._count(batch)) as log:
            yield log

    def _backward(self, batch: Any, forward: Callable[[Any, Any], Tensor], *, sync: bool) -> StepReport:
        self._log.micro_batches.clear()
        return (self.guard or self._start_guard(batch)).backward(batch, forward=forward, sync=sync)

    def _call_backward_hooks(self, loss: Tensor) -> None:
        """Call `on_before_backward` and `on_after_backward`, once per batch, after the gradients are complete."""
        plugin = self._trainer.precision_plugin
        plugin.post_backward(plugin.pre_backward(loss, self._module), self._module)

    def _count(self, batch: Any) -> int:
        return count_samples(batch, self._config.options.get("samples"))

    def _start_guard(self, batch: Any) -> Guard:
        trainer = self._trainer
        options = with_extra_state(self._config.options, self._log.micro_batches, MetricLists(self._module))
        if self._config.budget is not None:
            options = with_plan(options, self._plan(batch, self._config.budget), self._recorder)
        precision = PRECISIONS.get(trainer.precision, "")
        guard = guard_training(
            model=trainer.strategy.model,
            optimizer=trainer.strategy.optimizers,
            device=trainer.strategy.root_device,
            scaler=getattr(trainer.precision_plugin, "scaler", None),
            precision=precision if precision.startswith("amp") else None,  # for its tolerances; Lightning casts, too
            checkpoint=None if self._config.checkpoint is None else lambda _: self._save(),
            recorder=self._recorder,
            **options,
        )
        self._stack.callback(guard.close)
        if self._config.signals:
            self._stack.enter_context(guard.signals())
        self.guard = guard
        return guard

    def _plan(self, batch: Any, budget: int | str) -> Plan:
        """Plan the micro-batch from the first batch, before the first step."""
        trainer, module = self._trainer, self._module
        described = describe_module(trainer, module, batch, self._count(batch))
        accumulates = trainer.accumulate_grad_batches > 1
        return plan_model(described, trainer.strategy.root_device, budget, module, accumulates=accumulates)

    def remember_position(self) -> None:
        """Remember how many batches are part of complete updates."""
        progress = self._trainer.fit_loop.epoch_loop.batch_progress
        self._position = {"total": progress.total.completed, "current": progress.current.completed}

    def remember_loader(self) -> None:
        """Remember where loaders with a state are, after an update or at the start of an epoch."""
        fit_loop = self._trainer.fit_loop
        if fit_loop._combined_loader is not None and not fit_loop._should_accumulate():  # noqa: SLF001
            self._loader_states = copy.deepcopy(fit_loop._combined_loader._state_dicts())  # noqa: SLF001

    def _save(self) -> Path:
        """Write Lightning's checkpoint of the last update on this rank alone, and return its path."""
        trainer = self._trainer
        path = Path(trainer.default_root_dir) / os.fspath(self._config.checkpoint or "")
        self.is_saving = True
        try:
            checkpoint = trainer._checkpoint_connector.dump_checkpoint(weights_only=False)  # noqa: SLF001
            trainer.strategy.save_checkpoint(checkpoint, path)  # trainer.save_checkpoint would wait for other ranks
        finally:
            self.is_saving = False
        return path

    def rewind(self, checkpoint: dict[str, Any]) -> None:
        """Set the position in a checkpoint to the end of the last update: later batches are trained again."""
        fit_loop = checkpoint["loops"]["fit_loop"]
        progress = fit_loop["epoch_loop.batch_progress"]
        for name, completed in self._position.items():
            progress[name] = dict.fromkeys(progress[name], completed)
        progress["is_last_batch"] = False
        if self._loader_states:
            fit_loop["state_dict"]["combined_loader"] = self._loader_states


class GuardCallback(_Callback):  # type: ignore[misc]  # its base is chosen at import
    """A callback with which training steps are repeated with less memory instead of failing.

    Batches, updates, schedule, logged values and callbacks are those of the Trainer. A batch that doesn't fit is split
    into micro-batches whose gradients add up to those of the batch; after `cooldown_steps` batches larger ones are
    tried. In manual optimization, call `manual_backward` of this file.

    Args:
        record: write a Record of the run to this file, for `oomph watch`, `oomph report` and `oomph explain`.
        budget: bytes of the device that may be used, or a text such as "8GiB"; on the CPU, of this process. The
            micro-batch is planned before the first step.
        checkpoint: where the last update is saved when a step doesn't fit at all, for `fit(ckpt_path=…)`; in the
            Trainer's `default_root_dir` unless it is an absolute path. None to save nothing.
        signals: on Ctrl-C and SIGTERM, save the last update to `checkpoint` before the run stops.
        options: further options of `oomph.guard`: reduction, inexact, split, samples, micro_batch, extra_state,
            cooldown_steps, rank_timeout, snapshot, nvtx.

    Raises:
        UsageError: an option is unknown.
    """

    def __init__(
        self,
        *,
        record: str | os.PathLike[str] | None = None,
        budget: int | str | None = None,
        checkpoint: str | os.PathLike[str] | None = "emergency.ckpt",
        signals: bool = False,
        **options: Any,
    ) -> None:
        super().__init__()
        self._config = _GuardConfig(record, budget, checkpoint, signals, options)
        self._fit: _GuardedFit | None = None

    @property
    def guard(self) -> Guard | None:
        """The guard of the running `fit()`, after its first batch."""
        return None if self._fit is None else self._fit.guard

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Start guarding.

        Raises:
            UsageError: the setup can't be guarded.
        """
        check_supported(trainer, pl_module)
        if len(_guards(trainer)) > 1:
            raise UsageError("the Trainer has two GuardCallbacks", "keep one of them")
        self._fit = _GuardedFit(trainer, self._config)
        self._fit.start()

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Remember the position of the loader."""
        del trainer, pl_module
        if self._fit is not None:
            self._fit.remember_loader()

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Remember the position of manual optimization, which has no updates that Lightning knows."""
        del trainer, batch, batch_idx
        if self._fit is not None and not pl_module.automatic_optimization:
            self._fit.remember_position()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Remember the position of the loader after an update."""
        del trainer, pl_module, outputs, batch, batch_idx
        if self._fit is not None:
            self._fit.remember_loader()

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Set the position of an emergency checkpoint to the last update."""
        del trainer, pl_module
        if self._fit is not None and self._fit.is_saving:
            self._fit.rewind(checkpoint)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """End the Record with the error."""
        del trainer, pl_module
        self._end(exception)

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Stop guarding."""
        del trainer, pl_module, stage
        self._end(None)

    def _end(self, error: BaseException | None) -> None:
        fit, self._fit = self._fit, None
        if fit is not None:
            fit.close(error)

    def backward(self, batch: Any, forward: Callable[[Any, Any], Tensor], *, sync: bool = True) -> Tensor:
        """Compute the gradients of a batch in manual optimization; `manual_backward` calls it."""
        if self._fit is None:
            raise UsageError("GuardCallback.backward was called outside of fit()", "call it in training_step")
        return self._fit.backward(batch, forward, sync=sync)


def manual_backward(module: Any, batch: Any, forward: Callable[[Any, Any], Tensor], *, sync: bool = True) -> Tensor:
    """Compute the gradients of a batch in manual optimization; without a GuardCallback, as Lightning does.

        def training_step(self, batch, batch_idx):
            optimizer = self.optimizers()
            optimizer.zero_grad()
            loss = manual_backward(self, batch, lambda module, batch: module.loss(batch))
            optimizer.step()

    Args:
        module: the LightningModule.
        batch: the batch.
        forward: `forward(module, micro_batch)` returns the loss; it may call `self.log`.
        sync: average the gradients over the ranks; False to accumulate further batches first.

    Returns:
        The loss of the whole batch, detached.
    """
    callbacks = _guards(module.trainer)
    if callbacks:
        return callbacks[0].backward(batch, forward, sync=sync)
    loss = forward(module, batch)
    module.manual_backward(loss)
    return loss.detach()


def _guards(trainer: Any) -> list[GuardCallback]:
    return [item for item in trainer.callbacks if isinstance(item, GuardCallback)]
