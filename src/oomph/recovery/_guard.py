"""The guard: a training step that happens once, completely and exactly, in as many micro-batches as memory allows."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ..batch import Splitter, batch_format
from ..errors import UsageError
from ..monitor import Recorder, step_timer
from ..patches import BlockCheckpointing
from ..planner import Plan
from ._accelerate import AccelerateState
from ._accumulation import Accumulation
from ._batch_runner import BatchRunner
from ._caught_oom import CaughtOom, free_memory
from ._checkpoint import check_checkpoint_path, guard_state, load, load_guard_state, save, save_emergency
from ._checks import (
    WarnOnce,
    reject_changed_batch,
    reject_closures,
    reject_lazy_modules,
)
from ._config import GuardConfig, as_tuple, check_extra_state, check_optimizers, parse_device
from ._emergency import Emergency
from ._evaluation import Evaluation
from ._fallbacks import last_fallbacks
from ._memory import FitPredictor, Predict, memory_of
from ._optimizer_step import OptimizerStep, UpdateResult
from ._planned import carry_out, check_unplanned, record_plan
from ._retry_policy import LastFallback, RetryPolicy
from ._signals import StopRequest
from ._step_report import StepReport, record_fields
from ._step_state import StepMode, StepState
from ._transaction import CommitState, Transaction
from .profiling import nvtx_range, record_memory_history
from .ranks import connect_ranks, load_sharded, save_sharded
from .snapshots import (
    BufferSnapshot,
    ModuleAttributeSnapshot,
    ObjectSnapshot,
    RngSnapshot,
    Snapshot,
    SpectralNormSnapshot,
    check_restorable,
)
from .splitting import (
    ForwardMode,
    MetricFunction,
    Metrics,
    MicroBatchRunner,
    Objective,
)

_log = logging.getLogger("oomph")


def guard(  # noqa: PLR0913  options by name
    *,
    model: nn.Module,
    optimizer: Optimizer | Sequence[Optimizer],
    loss: Callable[..., Any] | None = None,
    forward: Callable[..., Any] | None = None,
    reduction: str | None = None,
    inexact: str = "refuse",
    split: Splitter | str | None = None,
    samples: Callable[[Any], int] | None = None,
    micro_batch: int | None = None,
    plan: Plan | None = None,
    scheduler: Any = None,
    scaler: Any = None,
    clip_grad_norm: float | Callable[[Any], object] | None = None,
    ema: Any = None,
    precision: str | None = None,
    device: torch.device | str | None = None,
    budget: int | str | None = None,
    predict: Predict | None = None,
    allow: str | Sequence[str] = (),
    resize: Callable[[Any], Any] | None = None,
    checkpoint: str | os.PathLike[str] | Callable[[Any], object] | None = None,
    recorder: Recorder | None = None,
    extra_state: Any = (),
    metrics: MetricFunction | None = None,
    cooldown_steps: int = 20,
    rank_timeout: float = 15.0,
    snapshot: str | os.PathLike[str] | None = None,
    nvtx: bool = False,
) -> Guard:
    """Guard a training loop against running out of memory.

    Args:
        model: the model to train; a DistributedDataParallel too.
        optimizer: one optimizer, or several that all step in each update.
        loss: `loss(outputs, targets)` returns a scalar or an `oomph.LossSum`. With an attribute `normalizer`, a
            function of the batch, it is called as `loss(outputs, targets, normalizer(batch))`. Without `loss` and
            `forward`, the model is called with the batch and returns its loss, as transformers' models do.
        forward: `forward(model, batch)` runs the model and returns the loss, or the outputs if `loss` is given.
        reduction: "mean" or "sum": declares how a plain loss depends on the samples, so that it is split in one pass;
            "either" if the check in the first step should tell.
        inexact: "warn" to split also where the gradient is not that of the whole batch.
        split: `split(batch, n)` returns n micro-batches; or the name of a format: "torchvision", "yolo".
        samples: `samples(batch)` returns the number of samples, for batches that don't show it.
        micro_batch: largest number of samples in a micro-batch; by default the whole batch.
        plan: the result of `oomph.plan`, to carry out: it is applied to the model and the optimizer, and sets
            micro_batch, precision and budget.
        scheduler: its `step()` is called after each update; several as a list.
        scaler: a `torch.amp.GradScaler`.
        clip_grad_norm: largest norm of the gradients, or a function of the parameters that clips them.
        ema: a moving average of the weights; `update(model)` or `update_parameters(model)` is called after each update.
        precision: "amp-bf16" or "amp-fp16" to run forward and loss in autocast.
        device: where micro-batches are moved; by default the model's device.
        budget: bytes, or a text such as "8GiB": of the device, or of this process's RAM on the CPU.
        predict: `predict(samples)` returns what a step needs with micro-batches of that size: bytes, or a Prediction.
        allow: changes that may cost accuracy when nothing else helps: "precision", "size".
        resize: `resize(batch)` returns the batch with smaller images, for `allow="size"`.
        checkpoint: where to save when the guard gives up or is asked to stop: a path, or a function of the guard.
        recorder: an `oomph.Recorder` for steps and out-of-memory errors.
        extra_state: objects that the forward changes, such as metrics, which a retry must not count twice.
        metrics: `metrics(outputs, batch)` returns a dict of numbers or tensors, summed over a step's micro-batches.
        cooldown_steps: steps without an out-of-memory error before larger micro-batches are tried.
        rank_timeout: seconds without a heartbeat after which another rank counts as dead.
        snapshot: a folder for memory snapshots: the last allocations on a GPU are recorded, and written there when
            memory runs out.
        nvtx: mark steps, micro-batches and updates on a GPU with NVTX ranges, for Nsight Systems.

    Raises:
        UsageError: an option is wrong, or something can't be guarded.
    """
    if not isinstance(model, nn.Module):
        raise UsageError(f"model is a {type(model).__name__}", "pass the torch.nn.Module to train")
    optimizers = check_optimizers(optimizer)
    if plan is not None:
        check_unplanned(micro_batch=micro_batch, precision=precision, budget=budget)
        micro_batch, precision, budget = carry_out(plan, model, optimizers)
        if recorder is not None:
            record_plan(recorder, plan)
    config = GuardConfig(
        forward=forward,
        reduction=reduction,
        inexact=inexact,
        split=split,
        samples=samples,
        micro_batch=micro_batch,
        schedulers=as_tuple(scheduler),
        scaler=scaler,
        clip_grad_norm=clip_grad_norm,
        ema=ema,
        precision=precision,
        device=device,
        budget=budget,
        predict=predict,
        allow=as_tuple(allow),
        resize=resize,
        checkpoint=checkpoint,
        recorder=recorder,
        extra_state=check_extra_state(extra_state),
        metrics=metrics,
        cooldown_steps=cooldown_steps,
        rank_timeout=rank_timeout,
        snapshot=snapshot,
        nvtx=nvtx,
    )
    return Guard(model, optimizers, loss, config)


class Guard:
    """Runs guarded training steps; created by `oomph.guard`.

    Attributes:
        model: the model to train, without its DistributedDataParallel wrapper.
        steps: number of steps so far, with and without an update.
        accumulation: the gradients of batches since the last update.
    """

    def __init__(
        self, model: nn.Module, optimizers: tuple[Optimizer, ...], loss: Callable[..., Any] | None, config: GuardConfig
    ) -> None:
        self._accelerate = AccelerateState(optimizers)
        optimizers = self._accelerate.optimizers
        reject_closures(optimizers)
        self.config, self.optimizers = config, optimizers
        self._ranks = connect_ranks(model, config)
        self.model = self._ranks.model
        reject_lazy_modules(self.model)
        check_restorable(config.extra_state, exclude=[self.model, *optimizers])
        if self._ranks.is_first:
            check_checkpoint_path(config.checkpoint, is_folder=self._ranks.is_sharded)
        device = _model_device(self.model) if config.device is None else parse_device(config.device)
        self.scaler = config.scaler or self._accelerate.scaler
        if self.scaler is None and config.precision == "amp-fp16":
            self.scaler = torch.amp.GradScaler(device.type)
        self._warnings = WarnOnce()
        objective = Objective(self.model, loss, config.forward, config.reduction)
        self.loss_modules = objective.loss_modules
        modules = [self.model, *self.loss_modules]
        mode = ForwardMode(config.precision, config.resize, is_mixed=self._accelerate.is_mixed_precision)
        batches = batch_format(config.split, config.samples)
        self._range = nvtx_range(enabled=config.nvtx, device=device)
        self._runner = MicroBatchRunner(self.model, batches, device, mode, SpectralNormSnapshot(*modules), self._range)
        self._checkpointing = BlockCheckpointing(self.model)
        fallbacks = last_fallbacks(self._checkpointing, config, mode)
        self.retry_policy = _retry_policy(config, fallbacks, device)
        self._memory = memory_of(device, config.budget_bytes)
        self._predictor = FitPredictor(config.predict, self._memory)
        self.accumulation = Accumulation(self.model, optimizers, self._warnings)
        self._emergency = Emergency(self._ranks, config.recorder, lambda: save_emergency(self, config.checkpoint))
        self._commit_state = CommitState()
        parts = [self.model, *optimizers, *config.schedulers]  # that other snapshots save
        targets = [target for target in (self.scaler, *config.extra_state) if target is not None]

        def forward_state() -> list[Snapshot]:
            state: list[Snapshot] = [RngSnapshot(device), BufferSnapshot(*modules), ModuleAttributeSnapshot(*modules)]
            return [*state, *(ObjectSnapshot(target, exclude=parts) for target in targets)]

        self._memory_history = record_memory_history(config.snapshot, device)
        self._transaction = Transaction.of(
            [*forward_state(), self.accumulation.stash], self._commit_state.is_final, self._dump_memory
        )
        self._batches = BatchRunner(
            objective,
            self._runner,
            forward_state=forward_state,
            warnings=self._warnings,
            max_over_ranks=self._ranks.control.max_over_ranks,
            allows_inexact=config.inexact == "warn",
        )
        self.optimizer_step = OptimizerStep(
            self.model, optimizers, config, self.scaler, self._commit_state, self._dump_memory
        )
        self._evaluation = Evaluation(
            self._runner, config.extra_state, self._memory, config.cooldown_steps, self._dump_memory
        )
        self._timer = step_timer(None if config.recorder is None else device)
        self._stop_request = StopRequest()
        self.steps = 0

    @property
    def notices(self) -> tuple[str, ...]:
        """Warnings about results that are not exact."""
        return tuple(self._warnings.messages)

    @property
    def is_checking(self) -> bool:
        """True while the check of the loss runs the forward: what it logs then is no part of the training."""
        return self._batches.is_checking

    @property
    def backup_bytes(self) -> int:
        """Size of the backup during the last optimizer update."""
        return self.optimizer_step.backup_bytes

    def step(self, batch: Any, *, forward: Callable[..., Any] | None = None, update: bool = True) -> StepReport:
        """Train on a batch: once, completely and exactly, or not at all.

        Args:
            batch: inputs and targets, or the argument of `forward`.
            forward: `forward(model, micro_batch)` returns the loss or the outputs, for this step only.
            update: False to only accumulate gradients; the batches up to the next update count as one batch.

        Raises:
            RetriesExhausted: no fallback made it fit; everything is as before the step, and was saved.
            RankLost: another rank died or gave up.
        """
        update = update and self._accelerate.syncs_grads
        return self._run_step(batch, forward, StepMode(updates=update, syncs=update))

    def backward(
        self, batch: Any, *, forward: Callable[..., Any] | None = None, scale: float = 1.0, sync: bool = True
    ) -> StepReport:
        """Compute the gradients of a batch in micro-batches and add them to `param.grad`; the update is the caller's.

        Args:
            batch: inputs and targets, or the argument of `forward`.
            forward: `forward(model, micro_batch)` returns the loss or the outputs, for this batch only.
            scale: factor of the gradients, such as 1 / accumulation steps.
            sync: average the gradients over the ranks; False to accumulate further batches first.

        Raises:
            RetriesExhausted: no fallback made it fit; everything is as before, and was saved.
            RankLost: another rank died or gave up.
        """
        return self._run_step(batch, forward, StepMode(updates=False, syncs=sync, scale=scale, adds_grads=True))

    def _run_step(self, batch: Any, forward: Callable[..., Any] | None, mode: StepMode) -> StepReport:
        number, pending = self.steps, self.accumulation.pending
        self._commit_state.partial = self._commit_state.committed = False
        try:
            with self._range("step {}", number), self._ranks.control.busy():
                state = StepState(batch, self._runner.count_samples(batch), mode)
                self._timer.start(state.started_at)
                self._batches.find_rule(state, forward, number)
                self._compute_grads(state)
                result = self._run_update(state) if mode.updates else self._keep_grads(state)
                self._transaction.release()
                self._end_step(number, mode)
                if not self.retry_policy.is_idle:
                    size = -(-state.samples // state.micro_batches)
                    self.retry_policy.on_success(state.largest_batch, lambda larger: self._fits(larger, size))
                report = self._report(state, result)
        except BaseException as error:
            self._transaction.rollback()
            if self._commit_state.is_final():
                self._end_step(number, mode)
                self.optimizer_step.reset_scaler()
            else:
                self.accumulation.pending = pending
            self.accumulation.stash.release()
            self._ranks.raise_if_lost(error)
            raise
        self._stop_if_requested(state.signum if mode.syncs else None)
        return report

    def _compute_grads(self, state: StepState) -> None:
        """Compute the gradients on all ranks, with as many fallbacks as needed."""
        if self.config.micro_batch is not None and self.config.micro_batch < state.samples:
            self._batches.splits.require_exact(state.rule, self.config.micro_batch)
        while True:
            min_samples = self._batches.min_samples(state)
            count = self.retry_policy.micro_batches(state.samples, min_samples)
            state.micro_batches = self._ranks.agree_on_micro_batches(count, state.samples)
            self._batches.announce(state)
            work = functools.partial(self._forward_backward, state)
            measure = self._checkpointing.measure() if state.retries else contextlib.nullcontext()
            attempt = self._range("attempt {}", state.retries + 1)
            watch = self._memory.watch(self.model, reset_peak=self.retry_policy.will_probe)
            with attempt, self._ranks.attempt(), watch, measure:
                oom = self._transaction.try_run(work)
            vote = self._ranks.vote(oom, state.samples, self._stop_request.signum)
            state.largest_batch, state.signum = vote.samples, vote.signum
            if vote.oom is None:
                return
            reject_changed_batch(state.batch, state.batch_versions)
            self._emergency.record(vote.oom, state.micro_batches, self.steps)
            self._transaction.restore()
            free_memory(collect=state.retries > 0)
            state.retries += 1
            fallback = self.retry_policy.next_fallback(
                vote.samples,
                min_samples,
                None if self.config.predict is None else self._fits,
                # Ranks choose alike, and only the one without memory knows how full it was.
                may_be_fragmented=self._ranks.control.is_distributed or not vote.oom.is_capacity,
            )
            if fallback is None:
                self._give_up_or_reraise(vote.oom, work, state)
                return
            if fallback.name == "collect_garbage":
                free_memory()
            state.fallbacks += (fallback,)

    def _forward_backward(self, state: StepState) -> None:
        mode, parameters = state.mode, self.accumulation.stash.parameters
        state.is_part = self.accumulation.begin(mode)
        metrics = Metrics(self.config.metrics)
        losses = self._batches.run(state, self._backward, metrics)
        self.accumulation.merge(losses, mode)
        if mode.syncs:
            self._ranks.prepare(parameters)
        if mode.updates and not self._ranks.reduces_grads:
            self.optimizer_step.prepare_grads()
        state.losses, state.loss, state.metrics = losses, losses.loss, metrics.sums

    def _backward(self, loss: Tensor) -> None:
        self._memory.check()
        (loss if self.scaler is None else self.scaler.scale(loss)).backward()

    def _keep_grads(self, state: StepState) -> UpdateResult:
        """Keep the gradients for a later update, by the guard or by the caller."""
        if state.mode.syncs:
            self._ranks.reduce_grads(self.accumulation.stash.parameters)
        self.accumulation.count(state)
        self._commit_state.committed = True
        return UpdateResult()

    def _run_update(self, state: StepState) -> UpdateResult:
        self.accumulation.count(state)
        self._ranks.reduce_grads(self.accumulation.stash.parameters)
        with self._range("optimizer update"):
            result = self.optimizer_step.run(self.optimizer_step.prepare_grads if self._ranks.reduces_grads else None)
        state.retries += result.retries
        state.fallbacks += result.fallbacks
        if result.oom is not None:
            self._emergency.record(result.oom, state.micro_batches, self.steps)
            if not self._commit_state.partial:
                self._transaction.restore()
            self._emergency.end(result.oom, partly_updated=result.partly_updated)
        return result

    def _end_step(self, number: int, mode: StepMode) -> None:
        """Count a step that has happened; after an interrupt this may run twice."""
        self.accumulation.end(mode)
        self.steps = number + 1

    def _fits(self, size: int, current_size: int = 1) -> bool:
        """Return True if micro-batches of a size fit on all ranks."""
        return self._ranks.all_agree(self._predictor.fits(size, current_size))

    def _give_up_or_reraise(self, oom: CaughtOom, work: Callable[[], object], state: StepState) -> None:
        """Save and give up; an error that may not be about memory is raised once more, with its own traceback."""
        if self._ranks.control.is_distributed or not oom.is_ambiguous:
            may_split = self._batches.splits.may_split(state.rule)
            notes = [] if may_split else [f"the batch was not split: {state.rule.problem}"]
            notes += (
                [] if self._checkpointing.steps else ["the model has no repeated blocks that could be checkpointed"]
            )
            self._emergency.end(oom, notes, together=True)
        self._emergency.save()
        self._transaction.run_uncaught(work)

    def _report(self, state: StepState, result: UpdateResult) -> StepReport:
        report = state.report(result, self._memory.peak, self.optimizer_step)
        if self.config.recorder is not None:
            # The norm of an update that the scaler skipped, or may have skipped, is infinite.
            norm = report.grad_norm if report.updated and report.skipped is False else None
            timing = self._timer.stop(self.steps, report.loss, norm)
            self.config.recorder.step({**record_fields(report, self.steps), **timing})
        return report

    def evaluate(
        self, loader: Iterable[Any], function: Callable[[nn.Module, Any], Any], *, model: nn.Module | None = None
    ) -> list[Any]:
        """Call `function(model, micro_batch)` for a loader's batches, in eval mode without gradients, each sample once.

        A micro-batch that doesn't fit is split; completed ones aren't repeated. Objects that the function changes, such
        as metrics, belong into `extra_state=`. Another model than the guard's, such as an EMA, is passed as `model`.

        Returns:
            The function's results, in order.
        """
        results: list[Any] = []
        self._timer.pause()
        for batch in loader:
            try:
                with self._ranks.control.busy():
                    # Ranks of a sharded model would wait for one that evaluates more parts than they do.
                    retries = not self._ranks.is_sharded
                    oom = self._evaluation.run(model or self.model, batch, function, results, retries=retries)
                    if oom is not None:
                        self._emergency.end(oom)
            except BaseException as error:
                self._ranks.raise_if_lost(error)
                raise
            self._stop_if_requested(None)
        return results

    @contextlib.contextmanager
    def signals(self) -> Iterator[None]:
        """Finish the step, save to `checkpoint=` and stop on Ctrl-C and SIGTERM; all ranks enter and leave together."""
        with self._stop_request.listen():
            yield
            self._stop_if_requested(self._ranks.agree_to_stop(self._stop_request.signum))

    def _stop_if_requested(self, agreed_signum: int | None) -> None:
        """Stop between two steps; ranks stop after the same update, because before it each has its own gradients."""
        signum = agreed_signum if self._ranks.control.is_distributed else self._stop_request.signum
        if signum is None:
            return
        self._emergency.save(together=True)
        if self.config.recorder is not None:
            self.config.recorder.event("stopped", step=self.steps)
        self._stop_request.stop(signum)

    def state_dict(self) -> dict[str, Any]:
        """Return everything that a resumed run needs: weights, optimizers, schedulers, scaler, EMA, random states."""
        return guard_state(self, with_grads=not self._ranks.reduces_grads)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where `state_dict()` was taken; ranks other than the first keep their random states."""
        load_guard_state(self, state, with_rng=self._ranks.control.is_first)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state to a file atomically; under FSDP2 all ranks call it together, and write a folder."""
        self._timer.pause()
        if self._ranks.is_sharded:
            save_sharded(self, path, self._ranks.control_group)
        else:
            save(self.state_dict(), path)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Continue where a saved run stopped; under FSDP2 with any number of ranks."""
        if self._ranks.is_sharded:
            load_sharded(self, path, self._ranks.control_group)
        else:
            self.load_state_dict(load(path))

    def close(self) -> None:
        """Stop the heartbeats to other ranks, and the recording of memory for `snapshot=`."""
        self._memory_history.close()
        self._ranks.control.close()

    def _dump_memory(self) -> Path | None:
        return self._memory_history.dump(self.steps)

    def __deepcopy__(self, memo: object) -> NoReturn:
        """Reject copies: a copy would update the EMA of the original."""
        raise UsageError("a guard can't be copied", "create another one for the copy of the model")


def _retry_policy(config: GuardConfig, fallbacks: tuple[LastFallback, ...], device: torch.device) -> RetryPolicy:
    return RetryPolicy(
        max_micro_batch=config.micro_batch,
        cooldown_steps=config.cooldown_steps,
        last_fallbacks=fallbacks,
        frees_cache=device.type != "cpu",
    )


def _model_device(model: nn.Module) -> torch.device:
    first = next(model.parameters(), None)
    if first is None:
        raise UsageError("the model has no parameters", "pass the model to train")
    return first.device
