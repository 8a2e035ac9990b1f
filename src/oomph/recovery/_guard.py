"""The guard: a training step that happens once, whole and exactly, in as many pieces as memory allows."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ..errors import OomphError, UsageError
from ._backward import can_begin, differentiate
from ._batch import versions_of
from ._contents import refuse_what_cannot_be_kept
from ._evaluate import Evaluation
from ._fault import Fault, free
from ._foresight import Foresight
from ._keepers import Buffers, Gradients, ObjectState, modules_of
from ._ladder import Ladder
from ._loss import Number, Tally, combine, shares
from ._meter import meter_for
from ._notices import BatchNorms, Notices, check_accumulation, check_loss, refuse_closures, refuse_lazy
from ._options import Options, read_device, read_optimizers, read_options
from ._pace import pace_for
from ._piecework import Piecework, Setting
from ._randomness import Randomness
from ._ranks import Ranks, find_ranks
from ._rungs import Checkpointing, last_rungs
from ._saving import check_place, load, save, save_at_the_end
from ._signals import Stop
from ._state import guard_state, set_guard_state
from ._step_report import Fallback, StepReport, out_of_rungs, step_fields
from ._transaction import Progress, Transaction
from ._update import Done, Update, gradients_of

_log = logging.getLogger("oomph")


def guard(
    *,
    model: nn.Module,
    optimizer: Optimizer | Sequence[Optimizer],
    loss: Callable[..., Any] | None = None,
    **options: Any,
) -> Guard:
    """A guard for a training loop.

    Args:
        model: what is trained; a DistributedDataParallel too.
        optimizer: one, or several that all make their step.
        loss: `loss(outputs, targets)`, a mean over samples or an `oomph.LossSum`; with an attribute `normalizer`, a
            function of the batch, it is called as `loss(outputs, targets, normalizer(batch))`.
        options: the rest, by name; docs/guard.md has them all.

    Raises:
        UsageError: an option is unknown or wrong, or something can't be guarded.
    """
    if not isinstance(model, nn.Module):
        raise UsageError(f"model is a {type(model).__name__}", "pass the torch.nn.Module that is trained")
    return Guard(model, read_optimizers(optimizer), loss, read_options(options))


class _Attempts:
    """What happened in a step so far."""

    pieces = 1
    samples = 0  # of the largest batch of all ranks
    asked: int | None = None  # the signal that asked any rank to end
    retries = 0
    rungs: tuple[Fallback, ...] = ()
    tally: Tally | None = None
    loss: Tensor | None = None

    def __init__(self, began: float, versions: list[int]) -> None:
        self.began, self.versions = began, versions  # the latter of the batch's tensors


class Guard:
    """Guards a training loop; made by `oomph.guard`.

    Attributes:
        model: what is trained, out of its DistributedDataParallel.
        optimizers: all of them.
        options: what the guard was told.
        loss_modules: those whose buffers the loss has.
        scaler: the one that was given, or made for "amp-fp16".
        ladder: what is in force so that steps fit.
        footing: what is in force so that updates fit.
        pending: what the batches that were accumulated since the last update count.
        steps: how many steps were made, updates or not.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizers: tuple[Optimizer, ...],
        loss: Callable[..., Any] | None,
        options: Options,
    ) -> None:
        refuse_closures(optimizers)
        self.options = options
        self._ranks: Ranks = find_ranks(model, options)
        self.model = self._ranks.inner
        if self._ranks.is_first:
            check_place(options.checkpoint)
        self.optimizers = optimizers
        refuse_lazy(self.model)
        device = _device_of(self.model) if options.device is None else read_device(options.device)
        self.scaler = _scaler(options, device)
        setting = Setting(options.precision, options.resize)
        self._work = Piecework(self.model, loss, options.split, device, setting)
        self.loss_modules = [one for one in modules_of(loss) if one is not self.model]
        self._notices = Notices()
        self._norms = BatchNorms(self.model, self._notices)
        if loss is not None:
            self._work.look = functools.partial(check_loss, self._notices, loss, self.model)
        self._blocks = Checkpointing(self.model)
        self.ladder = Ladder(
            limit=options.micro_batch,
            calm=options.cooldown_steps,
            lasts=last_rungs(self._blocks, options, setting),
            frees=device.type != "cpu",
        )
        self._meter = meter_for(device, options.budget_bytes)
        self._ranks.watch(lambda: not self._meter.fits(1.0))
        self._foresight = Foresight(options.predict, self._meter, on_cpu=device.type == "cpu")
        self._gradients = Gradients(self.model, optimizers)
        if not self._ranks.is_alone:
            self._work.announce = self._announce
        refuse_what_cannot_be_kept(options.extra_state)
        kept = [one for one in (self.scaler, *options.extra_state) if one is not None]
        self._progress = Progress()
        self._transaction = Transaction.of(
            [
                Randomness(device),
                Buffers(self.model, *self.loss_modules),
                *(ObjectState(one, but=[self.model]) for one in kept),
                self._gradients,
            ],
            self._progress.is_final,
        )
        self._update = Update(self.model, optimizers, options, self.scaler, self._progress)
        self.footing = self._update.footing
        self._evaluation = Evaluation(self._work, options.extra_state, self._meter, options.cooldown_steps)
        self._pace = None if options.recorder is None else pace_for(device)
        self._stop = Stop()
        can_begin()  # tried here, and not in the middle of a step
        self.pending: Number | None = None
        self.steps = 0

    @property
    def notices(self) -> tuple[str, ...]:
        """What can't be exact, as far as it was found."""
        return tuple(self._notices.said)

    @property
    def copy_bytes(self) -> int:
        """What the copy that protects an update takes, for the time of the update."""
        return self._update.copy_bytes

    def step(self, batch: Any, *, forward: Callable[..., Any] | None = None, update: bool = True) -> StepReport:
        """Train on a batch: once, whole and exactly, or not at all.

        Args:
            batch: inputs and targets, or whatever `forward` takes.
            forward: `forward(model, piece)` returns the loss of a piece, for this step.
            update: False to accumulate gradients only; the batches up to the next update count as one batch.

        Raises:
            RetriesExhausted: nothing made it fit; everything is as before the step, and was saved.
            RankLost: another rank died or gave up.
        """
        tries = _Attempts(time.perf_counter(), versions_of(batch))
        if self._pace is not None:
            self._pace.begin(tries.began)
        samples, number = self._work.samples(batch), self.steps
        if samples == 0:
            raise UsageError("the batch has no samples", "leave empty batches out")
        self._progress.restart()
        try:
            with self._ranks.busy():
                self._accumulate(batch, samples, forward or self.options.forward, tries, update=update)
                done = self._finish(tries, update=update)
            self._transaction.let_go()
            self._close(number, update=update)
        except BaseException as error:
            lost = self._undo(error)
            if self._progress.is_final():
                self._close(number, update=update)
                self._update.release()
            if lost is None:
                raise
            raise lost from error
        if not self.ladder.is_calm:
            now = -(-samples // tries.pieces)
            self.ladder.settle(tries.samples, lambda size: self._fits(size, now))
        report = self._report(tries, done, update=update)
        self._end_if_asked(tries.asked if update else None)
        return report

    def _close(self, number: int, *, update: bool) -> None:
        """Count a step that has happened; may be done twice, when it is interrupted."""
        if update:
            self._gradients.clear()
            self.pending = None
        self.steps = number + 1

    def _undo(self, error: BaseException) -> OomphError | None:
        """An error that leaves the guard leaves everything as before, or as after a step that can't be undone.

        Returns what the error really is, if another rank is gone.
        """
        self._transaction.undo()
        lost = self._ranks.find_lost(error)
        self._ranks.leave(f"{type(error).__name__}: {error}")
        return lost

    def _accumulate(
        self, batch: Any, samples: int, forward: Callable[..., Any] | None, tries: _Attempts, *, update: bool
    ) -> None:
        """Forward and backward of all pieces, on all ranks, climbing as far as needed."""
        while True:
            tries.pieces = self.ladder.pieces(samples, self._smallest())
            closely = self.ladder.is_deciding
            self._meter.begin(self.model, closely=closely)
            self._ranks.begin(update=update)
            try:
                work = functools.partial(self._attempt, batch, samples, forward, tries, update=update)
                fault = self._transaction.attempt(
                    functools.partial(self._blocks.measure, work) if tries.retries else work
                )
            finally:
                self._meter.end(closely=closely)
            agreed = self._ranks.agree(fault, samples, self._stop.asked)
            tries.samples, tries.asked, fault = agreed.samples, agreed.asked, agreed.fault
            if fault is None and not agreed.again:
                return
            _refuse_changed(batch, tries.versions)
            if fault is None:
                self._transaction.put_back()
                continue
            if not fault.elsewhere:
                self._tell(fault, tries)
            self._transaction.put_back()
            free(collect=tries.retries > 0)
            tries.retries += 1
            foresees = None if self.options.predict is None else self._fits
            # Ranks climb alike, and only one of them knows how full its memory was.
            holes = not (self._ranks.is_alone and fault.is_full)
            rung = self.ladder.climb(tries.samples, self._smallest(certainly=True), foresees, holes=holes)
            if rung is None:
                self._insist(fault, work)
                return
            if rung.name == "collect":
                free()
            tries.rungs += (rung,)

    def _attempt(
        self, batch: Any, samples: int, forward: Callable[..., Any] | None, tries: _Attempts, *, update: bool
    ) -> None:
        tries.tally = None
        tally = self._work.run(batch, tries.pieces, forward, self._backward, samples)
        parameters = self._gradients.parameters
        tally.correct(gradients_of(parameters))
        aside = self._gradients.aside
        if aside or self.pending is not None:
            parts = shares(tally.weight, self.pending)
            for index, parameter in enumerate(parameters):
                parameter.grad = combine(parameter.grad, aside.get(index), parts)
        if update:
            if not self._ranks.is_alone:
                self._ranks.prepare(self._gradients.trained)
            if not self._ranks.exchanges:
                self._update.prepare()
        tries.tally, tries.loss = tally, tally.loss

    def _announce(self, final: bool) -> None:  # noqa: FBT001  the only question
        self._ranks.announce(final=final and self.pending is None and not self._gradients.aside)

    def _backward(self, value: Tensor, weight: float) -> None:
        self._meter.look()
        differentiate(value if self.scaler is None else self.scaler.scale(value), weight)

    def _finish(self, tries: _Attempts, *, update: bool) -> Done:
        assert tries.tally is not None  # noqa: S101  the attempt succeeded
        if not update or self.pending is not None:
            check_accumulation(self._notices, known=tries.tally.is_accumulable)
        if not update:
            pending = tries.tally.weight + (0.0 if self.pending is None else self.pending)
            self.pending, self._progress.done = pending, True
            return Done()
        exchanges = self._ranks.exchanges
        if exchanges:
            self._ranks.exchange(self._gradients.trained)
        done = self._update.run(self._update.prepare if exchanges else None)
        tries.retries += done.retries
        tries.rungs += done.rungs
        if done.fault is not None:
            self._tell(done.fault, tries)
            if not self._progress.begun:
                self._transaction.put_back()
            self._give_up(done.fault, half=done.half)
        return done

    def _smallest(self, *, certainly: bool = False) -> int:
        """How many samples a piece must have; looked for only when there will be several pieces."""
        if not certainly and self.ladder.is_calm and self.options.micro_batch is None:
            return 1
        return self._norms.smallest()

    def _fits(self, size: int, now: int = 1) -> bool:
        """Whether pieces of so many samples fit on all ranks, where this one's have so many now."""
        return self._ranks.all_agree(self._foresight.fits(size, now))

    def _insist(self, fault: Fault, work: Callable[[], object]) -> None:
        """Out of rungs: save and end. What may be no memory problem comes once more, to end the run by itself."""
        if not (fault.is_doubtful and self._ranks.is_alone):
            self._give_up(fault)
        self._save_emergency()
        self._transaction.insist(work)

    def _give_up(self, fault: Fault, *, half: bool = False) -> NoReturn:
        """Save and end.

        Raises:
            RetriesExhausted: always, unless it may be no memory problem: then what it was.
        """
        place = None if half else self._save_emergency()
        error = fault.original()
        if fault.is_doubtful and error is not None:
            raise error
        raise out_of_rungs(fault, place, half=half) from error

    def _save_emergency(self) -> str | None:
        if not self._ranks.is_first:
            return None
        return save_at_the_end(self, self.options.checkpoint, several=not self._ranks.is_alone)

    def _tell(self, fault: Fault, tries: _Attempts) -> None:
        _log.debug("step %d: %s", self.steps, fault.words)
        if self.options.recorder is not None:
            self.options.recorder.event(
                "oom", kind=fault.kind, micro_batches=tries.pieces, step=self.steps, survived=True
            )

    def _report(self, tries: _Attempts, done: Done, *, update: bool) -> StepReport:
        loss = tries.loss
        assert loss is not None  # noqa: S101  as above
        seconds = time.perf_counter() - tries.began
        report = StepReport(
            tries.pieces,
            tries.retries,
            tries.rungs,
            loss,
            self._meter.peak,
            seconds,
            done.skipped if update else False,
            update,
        )
        if self.options.recorder is not None:
            told = {} if self._pace is None else self._pace.end(report, self._update.norm, self.steps)
            self.options.recorder.step({**step_fields(report, self.steps), **told})
        return report

    def evaluate(
        self, loader: Iterable[Any], function: Callable[[nn.Module, Any], Any], *, model: nn.Module | None = None
    ) -> list[Any]:
        """Run `function(model, piece)` over a loader without gradients, in eval mode, each sample exactly once.

        A piece that doesn't fit is cut smaller; what was done stays done, so nothing is counted twice. A metric that
        the function changes belongs into `keep=`.

        Args:
            loader: gives batches.
            function: what is done with each piece; its results are returned, in order.
            model: another one than the guard's, such as an average.

        Raises:
            RetriesExhausted: a single sample doesn't fit.
        """
        results: list[Any] = []
        if self._pace is not None:
            self._pace.pause()
        for batch in loader:
            try:
                with self._ranks.busy():
                    fault = self._evaluation.run(model or self.model, batch, function, results)
                    if fault is not None:
                        self._give_up(fault)
            except BaseException as error:
                lost = self._undo(error)
                if lost is None:
                    raise
                raise lost from error
            self._end_if_asked(None)
        return results

    @contextlib.contextmanager
    def signals(self) -> Iterator[None]:
        """While in here, Ctrl-C and SIGTERM finish the step, save to `checkpoint=` and end the run.

        Of several ranks, all must be in here, and leave together.
        """
        with self._stop.listening():
            yield
            self._end_if_asked(self._ranks.agree_to_end(self._stop.asked))

    def _end_if_asked(self, agreed: int | None) -> None:
        """End between two steps; of several ranks, all after the same update: before it each has its own gradients."""
        asked = self._stop.asked if self._ranks.is_alone else agreed
        if asked is None:
            return
        self._save_emergency()
        if self.options.recorder is not None:
            self.options.recorder.event("stopped", step=self.steps)
        self._stop.end(asked)

    def state_dict(self) -> dict[str, Any]:
        """Everything that a resumed run needs: weights, optimizers, scheduler, scaler, average, random states."""
        return guard_state(self)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state_dict` was taken.

        Raises:
            UsageError: it is the state of something else.
        """
        set_guard_state(self, state)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state to a file, which is there whole or not at all."""
        if self._pace is not None:
            self._pace.pause()
        save(self.state_dict(), path)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Go on where a saved run stopped.

        Raises:
            MissingFile: there is no such file.
            InvalidFile: it is no state that was saved.
        """
        self.load_state_dict(load(path))

    def close(self) -> None:
        """Say goodbye to the other ranks; one process has nothing to close."""
        self._ranks.close()


def _refuse_changed(batch: Any, versions: list[int]) -> None:
    """A batch that was changed in place can't be tried again: the change would happen twice.

    Raises:
        UsageError: it was changed.
    """
    if versions_of(batch) != versions:
        raise UsageError(
            "memory ran short, and the step can't be tried again because the forward has changed its batch in place",
            "make a new tensor in the forward: x = x / 255 instead of x /= 255",
        )


def _device_of(model: nn.Module) -> torch.device:
    first = next(model.parameters(), None)
    if first is None:
        raise UsageError("the model has no parameters", "pass the model that is trained")
    return first.device


def _scaler(options: Options, device: torch.device) -> Any:
    if options.scaler is None and options.precision == "amp-fp16":
        return torch.amp.GradScaler(device.type)
    return options.scaler
