"""transformers: `GuardedTrainer`, a Trainer whose steps are repeated with less memory instead of failing.

    from oomph.integrations.transformers import GuardedTrainer

    trainer = GuardedTrainer(model=model, args=args, train_dataset=data, record="run.jsonl", budget="8GiB")
    trainer.train()

`guarded(SFTTrainer)` is the same for other Trainer classes. It needs transformers 4.57 or newer; importing this file
imports transformers.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ..adapters import FrameworkJob
from ..batch import count_samples
from ..errors import UsageError
from ..job import Job, resize_batch
from ..monitor import Recorder, watch
from ..planner import Plan
from ..recovery import Guard, PlainAttributeSnapshot, RngSnapshot
from ..recovery import guard as guard_training
from ..settings import Settings, environment_allocator
from ._accelerator import check_accelerator
from ._guard_options import check_budget_and_record, check_options, with_extra_state
from ._micro_batch_plan import plan_model, with_plan
from ._versions import check_version

try:
    import transformers
except ModuleNotFoundError as missing:
    raise UsageError(f"the package {missing.name} isn't installed", "run `pip install transformers`") from None

check_version("transformers", transformers.__version__, "4.57")

__all__ = ["GuardedTrainer", "describe", "guarded"]

_log = logging.getLogger("oomph")
_UPDATES_IN_BACKWARD = ("lomo", "layerwise")  # in the name of an optimizer
_COUNTED_ELSEWHERE = ("current_flos",)  # saving a checkpoint sets it back
_HEAVY = ("model", "model_wrapped", "train_dataset", "eval_dataset", "optimizer", "lr_scheduler", "callback_handler")


@dataclass(frozen=True)
class _GuardConfig:
    """The options of a guarded Trainer, which `GuardedTrainer` documents."""

    record: str | os.PathLike[str] | None = None
    budget: int | str | None = None
    signals: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_options(self.options, got="guard_options contains", owner="the Trainer")
        check_budget_and_record(self.budget, self.record)


class _GuardedRun:
    """One call of `train()`: its Record, its plan, its guard and its emergency checkpoint.

    Args:
        trainer: the Trainer.
        config: its options.

    Attributes:
        guard: the guard of the model that is trained; None before the first step.
    """

    def __init__(self, trainer: Any, config: _GuardConfig) -> None:
        self._trainer, self._config = trainer, config
        self._stack = contextlib.ExitStack()
        self._recorder: Recorder | None = None
        self._options = dict(config.options)
        self._rng = RngSnapshot(trainer.args.device)
        self._restore_rng: Callable[[], object] = lambda: None
        self.guard: Guard | None = None

    def __enter__(self) -> _GuardedRun:  # noqa: PYI034  Self came with Python 3.11
        trainer, config = self._trainer, self._config
        with contextlib.ExitStack() as stack:
            if config.record is not None and trainer.is_world_process_zero():
                self._recorder = stack.enter_context(watch(config.record))
            if config.budget is not None:
                self._options = with_plan(config.options, _plan(trainer, config.budget), self._recorder)
            callback = _UpdateStart(self)
            trainer.add_callback(callback)
            stack.callback(trainer.remove_callback, callback)
            stack.callback(self._close)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.__exit__(*error)  # type: ignore[arg-type]

    def _close(self) -> None:
        if self.guard is not None:
            self.guard.close()
        elif self._trainer.state.global_step:
            name = type(self._trainer).__name__
            _log.warning("Nothing was guarded: training_step of %s doesn't call super().training_step().", name)

    def start_guard(self, model: nn.Module) -> Guard:
        """Return the guard of the prepared model."""
        if self.guard is None:
            # A loss is a sum if it is divided by the labels of all accumulated batches, and often a mean otherwise.
            options: dict[str, Any] = {"reduction": "either", **self._options}
            # Metrics that a loss function collects in its Trainer, as trl's do.
            collected = PlainAttributeSnapshot(self._trainer, exclude=(*_HEAVY, *_COUNTED_ELSEWHERE))
            self.guard = guard_training(
                model=model,
                optimizer=self._trainer.optimizer,
                device=self._trainer.args.device,
                checkpoint=lambda _: self._save(),
                recorder=self._recorder,
                **with_extra_state(options, collected),
            )
            if self._config.signals:
                self._stack.enter_context(self.guard.signals())
        return self.guard

    @property
    def is_checking(self) -> bool:
        """True while the loss is computed only to find out how a batch may be split."""
        return self.guard is not None and self.guard.is_checking

    def remember_rng(self) -> None:
        """Remember the random states that a checkpoint of the last update needs."""
        self._restore_rng = self._rng.capture()

    def _save(self) -> Path:
        """Write the Trainer's checkpoint of the last update, and return its folder.

        Batches that were accumulated since then are trained again, so the random states are those before them.
        """
        trainer, state = self._trainer, self._trainer.state
        self._restore_rng()
        with _saving_alone(trainer) if trainer.args.world_size > 1 else contextlib.nullcontext():
            trainer._save_checkpoint(trainer.model_wrapped, None)  # noqa: SLF001  it has no public name
        trainer.control = trainer.callback_handler.on_save(trainer.args, state, trainer.control)
        return Path(trainer.args.output_dir) / f"checkpoint-{state.global_step}"


@contextlib.contextmanager
def _saving_alone(trainer: Any) -> Iterator[None]:
    """Let the first rank save without the others, whose operations and best step it would wait for."""
    state = trainer.state
    best_step = getattr(state, "best_global_step", None)
    state.best_global_step, trainer.store_flos = None, lambda: None
    try:
        yield
    finally:
        state.best_global_step = best_step
        del trainer.store_flos  # the attribute hid the method


class _UpdateStart(transformers.TrainerCallback):  # type: ignore[misc]  # transformers has no types
    """Remembers the random states at the start of each update, as the Trainer restores them when it resumes."""

    def __init__(self, run: _GuardedRun) -> None:
        self._run = run

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Remember those before the loader of the epoch draws its seed: a resumed epoch draws it again."""
        del args, state, control, kwargs
        self._run.remember_rng()

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Remember those after the batches are loaded: a resumed run skips batches first."""
        del args, control, kwargs
        if not float(state.epoch or 0).is_integer():
            self._run.remember_rng()


class _GuardedStep(transformers.Trainer):  # type: ignore[misc]
    """The training step of a guarded Trainer; it is below other Trainer classes, so that their overrides run."""

    _guarded_run: _GuardedRun | None

    def training_step(self, model: nn.Module, inputs: Any, num_items_in_batch: Any = None) -> Tensor:
        """Compute the gradients of a batch in as many micro-batches as memory allows, and return its loss."""
        if self._guarded_run is None:  # it was called outside of `train()`
            return super().training_step(model, inputs, num_items_in_batch)  # type: ignore[no-any-return]
        model.train()
        if callable(getattr(self.optimizer, "train", None)):
            self.optimizer.train()
        divisor = 1 if _is_scaled(self, num_items_in_batch) else self.current_gradient_accumulation_steps
        report = self._guarded_run.start_guard(model).backward(
            self._prepare_inputs(inputs),
            forward=functools.partial(self._guarded_loss, num_items_in_batch=num_items_in_batch, divisor=divisor),
            scale=1 / self.accelerator.gradient_accumulation_steps,
            sync=self.accelerator.sync_gradients,
        )
        return report.loss

    def _guarded_loss(self, model: nn.Module, inputs: Any, *, num_items_in_batch: Any, divisor: int) -> Tensor:
        with self.compute_loss_context_manager():
            # A copy, because labels are taken out of it.
            loss: Tensor = self.compute_loss(model, copy.copy(inputs), num_items_in_batch=num_items_in_batch)
        return loss / divisor if divisor != 1 else loss


class _GuardMixin:
    """The options of a guarded Trainer, and its runs; above other Trainer classes."""

    _guarded_run: _GuardedRun | None = None

    def __init__(
        self,
        *args: Any,
        record: str | os.PathLike[str] | None = None,
        budget: int | str | None = None,
        signals: bool = False,
        guard_options: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        self._guard_config = _GuardConfig(record, budget, signals, dict(guard_options or {}))
        super().__init__(*args, **kwargs)

    def log(self, *args: Any, **kwargs: Any) -> None:
        """Log as the Trainer does, but nothing while the guard checks a loss that logs by itself."""
        if self._guarded_run is None or not self._guarded_run.is_checking:
            super().log(*args, **kwargs)  # type: ignore[misc]

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """Train as the Trainer does; a step that doesn't fit is repeated in smaller micro-batches.

        Raises:
            CannotFit: not even the smallest micro-batch fits into the budget.
            RetriesExhausted: a step doesn't fit; the last update was saved to `checkpoint-N` in the output folder.
            UsageError: the setup can't be guarded.
        """
        _check_supported(self)
        with _GuardedRun(self, self._guard_config) as run:
            self._guarded_run = run
            try:
                return super().train(*args, **kwargs)  # type: ignore[misc]
            finally:
                self._guarded_run = None


class GuardedTrainer(_GuardMixin, _GuardedStep):
    """A Trainer whose training steps are repeated with less memory instead of failing.

    Batches, updates, schedule, logs and callbacks are those of the Trainer. A batch that doesn't fit is split into
    micro-batches whose gradients add up to those of the batch; after `cooldown_steps` batches larger ones are tried.

    Args:
        args: arguments of the Trainer.
        record: write a Record of the run to this file, for `oomph watch`, `oomph report` and `oomph explain`.
        budget: bytes of the device that may be used, or a text such as "8GiB"; on the CPU, of this process. The
            micro-batch is planned before training.
        signals: on Ctrl-C and SIGTERM, save the last update to `checkpoint-N` before the run stops.
        guard_options: further options of `oomph.guard`: reduction, inexact, split, samples, micro_batch, extra_state,
            cooldown_steps, rank_timeout, snapshot, nvtx.
        kwargs: arguments of the Trainer.
    """


def guarded(trainer_class: type[Any]) -> type[Any]:
    """Return a guarded Trainer class, such as `guarded(SFTTrainer)`, with the further arguments of `GuardedTrainer`.

    Raises:
        UsageError: it is not a Trainer class.
    """
    if not inspect.isclass(trainer_class) or not issubclass(trainer_class, transformers.Trainer):
        raise UsageError(f"{trainer_class!r} is not a Trainer class", "pass a class, such as Seq2SeqTrainer")
    if issubclass(trainer_class, _GuardMixin):
        return trainer_class
    if trainer_class is transformers.Trainer:
        return GuardedTrainer
    return _guarded_class(trainer_class)  # type: ignore[arg-type]  # mypy takes classes for unhashable


@functools.cache
def _guarded_class(trainer_class: Any) -> type[Any]:
    names = {"__doc__": trainer_class.__doc__, "__module__": trainer_class.__module__}
    return type(f"Guarded{trainer_class.__name__}", (_GuardMixin, trainer_class, _GuardedStep), names)


def describe(trainer: Any) -> FrameworkJob:
    """Return what a Trainer trains, and how, for `oomph.predict(trainer)` and `oomph.plan(trainer)`.

    The batch is the first of its loader. The Trainer is not changed.

    Raises:
        UsageError: it is not a Trainer, or it has no training set.
    """
    if not isinstance(trainer, transformers.Trainer):
        raise UsageError(f"a {type(trainer).__name__} can't be predicted alone", "pass the Trainer that trains it")
    batch, items = _example(trainer)
    model: Any = trainer.model
    samples = trainer.args.train_batch_size
    light = copy.copy(trainer)
    light.__dict__.update(dict.fromkeys(_HEAVY))
    checkpointing = trainer.args.gradient_checkpointing and not getattr(model, "is_gradient_checkpointing", True)

    def build() -> Any:  # in a trace, the model is a copy
        if checkpointing:
            model.gradient_checkpointing_enable(checkpoint_options)
        return model

    def optimizer(model: nn.Module) -> Any:
        light.model = model
        return light.create_optimizer()

    def step(model: nn.Module, batch: Any) -> Tensor:
        loss: Tensor = light.compute_loss(model, copy.copy(batch), num_items_in_batch=items)
        return loss

    own = ("every_n_layers", "offload")  # of the Trainer; without them more is recomputed than in training
    checkpoint_options = {
        name: value for name, value in (trainer.args.gradient_checkpointing_kwargs or {}).items() if name not in own
    } or None
    existing = getattr(trainer.optimizer, "optimizer", trainer.optimizer)  # without accelerate's wrapper
    count = count_samples(batch)
    job = Job(
        model=build,
        batch=lambda n, _: resize_batch(batch, count, n),
        optimizer=optimizer if existing is None else lambda _: existing,
        step=step,
    )
    steps = trainer.args.gradient_accumulation_steps
    precision = {"bf16": "amp-bf16", "fp16": "amp-fp16"}.get(trainer.accelerator.mixed_precision, "fp32")
    return FrameworkJob(
        job,
        Settings(
            batch=samples * steps,
            micro_batch=samples if steps > 1 else None,
            precision=precision,
            allocator=environment_allocator(),
        ),
    )


def _plan(trainer: Any, budget: int | str) -> Plan:
    accumulates = trainer.args.gradient_accumulation_steps > 1
    return plan_model(describe(trainer), trainer.args.device, budget, trainer.model, accumulates=accumulates)


def _example(trainer: Any) -> tuple[Mapping[str, Any], int | None]:
    """Return the first batch of a Trainer's loader and its number of labels; nothing of the Trainer is changed."""
    if (
        trainer.train_dataset is None
        and type(trainer).get_train_dataloader is transformers.Trainer.get_train_dataloader
    ):
        raise UsageError("the Trainer has no train_dataset", "create it with one")
    restore_rng = RngSnapshot(trainer.args.device).capture()
    prepared = trainer.accelerator._dataloaders  # noqa: SLF001  accelerate keeps every loader that it prepares
    before = len(prepared)
    try:
        loader = trainer.get_train_dataloader()
        iterator = iter(loader)
        batches, items = trainer.get_batch_samples(iterator, 1, trainer.args.device)
        del iterator
        if hasattr(loader, "end"):
            loader.end()  # accelerate counts batches of the loaders that have begun
    finally:
        del prepared[before:]
        restore_rng()
    if not batches:
        raise UsageError("the Trainer's loader has no batch", "create it with a train_dataset")
    return batches[0], None if items is None else int(items)


def _is_scaled(trainer: Any, num_items_in_batch: Any) -> bool:
    """Return True if a loss is divided by the labels of all accumulated batches, as `Trainer.training_step` decides."""
    if getattr(transformers.Trainer, "loss_is_scaled_for_ga", False) is None:  # since 5.x a class may declare it
        declared = trainer.loss_is_scaled_for_ga
        if declared is not None:
            return bool(declared)
    by_model = trainer.model_accepts_loss_kwargs and num_items_in_batch is not None
    return bool(by_model or trainer.compute_loss_func is not None)


def _check_supported(trainer: Any) -> None:
    args = trainer.args
    if args.auto_find_batch_size:
        raise UsageError(
            "auto_find_batch_size starts again with a smaller batch and more updates",
            "leave it out: the guard splits a batch that doesn't fit, and training stays the same",
        )
    if args.n_gpu > 1:
        raise UsageError(
            f"the Trainer would train on {args.n_gpu} GPUs with DataParallel, which can't be guarded",
            "start one process per GPU with torchrun, or set CUDA_VISIBLE_DEVICES to one of them",
        )
    check_accelerator(trainer.accelerator)
    optim = str(getattr(args.optim, "value", args.optim))
    if any(name in optim for name in _UPDATES_IN_BACKWARD):
        raise UsageError(f"the optimizer {optim} updates weights during backward", "use another optim=")
