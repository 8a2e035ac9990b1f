"""The update: optimizers, scaler, average and scheduler, all of them or none."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from ..errors import UsageError
from ._contents import Modules
from ._fault import Fault, free
from ._footing import Footing
from ._keepers import (
    GradientCopies,
    GroupOptions,
    Keeper,
    ObjectState,
    OptimizerState,
    owner_of,
    parameters_of,
)
from ._options import Options
from ._ranks import NOTHING
from ._signals import HoldInterrupt
from ._step_report import Fallback
from ._transaction import Progress, Transaction
from ._wholeness import Wholeness

_HOST = Fallback(
    "host copy",
    "kept the copy of weights and optimizer state on the host",
    "a transfer in this step; a fused optimizer needs none",
)
_ONE = Fallback("one by one", "updated parameters one after the other", "more and smaller kernels in this step")
_RUNGS = (_HOST, _ONE)  # of levels above that of everybody's update
_CLIMB = (0, 0, 1, 2)  # levels above the first one, attempt by attempt
_log = logging.getLogger("oomph")


class Done:
    """What an update did so far."""

    fault: Fault | None = None
    retries = 0
    rungs: tuple[Fallback, ...] = ()
    skipped: bool | None = False
    half = False


@dataclass(frozen=True)
class _Way:
    """How an attempt at an update goes.

    Attributes:
        copied: the optimizers that make their step first, of which there is a copy.
        whole: those that make it after them, because they can't be undone.
        transaction: what puts everything back.
    """

    copied: tuple[Optimizer, ...]
    whole: tuple[Wholeness, ...]
    transaction: Transaction


class Update:
    """Makes updates, each of them whole.

    Parameters and optimizer state are copied before, because most optimizers allocate between their writes, so that
    memory can run short when half is written. On a GPU a fused one doesn't, nor does the usual SGD, and room for Adam's
    is found before: these aren't copied.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizers: Sequence[Optimizer],
        options: Options,
        scaler: Any,
        progress: Progress,
    ) -> None:
        self._progress = progress
        self._model, self._optimizers, self._scaler = model, optimizers, scaler
        self._schedulers, self._clip = options.schedulers, options.clip_grad_norm
        self._average = None if options.ema is None else _average(options.ema, model)
        self._states = {id(optimizer): OptimizerState(optimizer, ready=True) for optimizer in optimizers}
        self._others = [ObjectState(one, but=[model]) for one in (scaler, *options.schedulers) if one is not None]
        if options.ema is not None:
            # Not the model that it may hold: weights that a fused update has changed must stay so.
            depth: Modules = "nothing" if _is_whole(options.ema, model) else "weights"
            self._others.append(ObjectState(owner_of(options.ema), but=[model], modules=depth))
        self._whole = [Wholeness(optimizer, hooks=int(scaler is not None)) for optimizer in optimizers]
        self._usual: tuple[list[bool], _Way] | None = None  # the way of the last step, and what it depends on
        self.footing = Footing(options.cooldown_steps)
        self._copied: tuple[Optimizer, ...] = ()  # in the last attempt
        self._ran: set[int] = set()
        self._is_broken = False  # an update of which there is no copy has ended half-way
        self._hold = HoldInterrupt()
        self.norm: torch.Tensor | float | None = None  # of the gradients before they were clipped

    @property
    def parameters(self) -> list[nn.Parameter]:
        """Everything that is updated."""
        return [one for optimizer in self._optimizers for one in parameters_of(optimizer)]

    @property
    def copy_bytes(self) -> int:
        """What the copy of the last update took."""
        return sum(self._states[id(one)].bytes for one in self._copied)

    def prepare(self) -> None:
        """Bring the gradients into the form that the optimizers take: unscaled and clipped."""
        if self._scaler is not None:
            for optimizer in self._optimizers:
                self._scaler.unscale_(optimizer)
        if callable(self._clip):
            self.norm = _number(self._clip(self.parameters))
        elif self._clip is not None:
            self.norm = nn.utils.clip_grad_norm_(self.parameters, self._clip)

    def release(self) -> None:
        """An error came after an update that stays: let the scaler take the next one."""
        states = getattr(self._scaler, "_per_optimizer_states", None)
        if states is not None:
            states.clear()

    def run(self, prepare: Callable[[], object] | None = None) -> Done:
        """Make the update; what went wrong if it could not be made, with everything as before.

        Args:
            prepare: done first, for gradients that can't be computed again.
        """
        self._ran.clear()
        self._is_broken = False
        if self._scaler is None:
            return self._run(prepare)
        # Only a hook tells whether the scaler let an optimizer make its step, without asking the device.
        handles = [one.register_step_post_hook(lambda own, _, __: self._ran.add(id(own))) for one in self._optimizers]
        try:
            return self._run(prepare)
        finally:
            for handle in handles:
                handle.remove()

    def _run(self, prepare: Callable[[], object] | None) -> Done:
        done, first = Done(), self.footing.first
        for attempt, higher in enumerate(_CLIMB):
            level = min(first + higher, len(_RUNGS))
            done.fault = self._attempt(level, prepare)
            if done.fault is None:
                self._settle(done, level if self._copied else 0)
                return done
            free(collect=attempt > 0)
            done.retries += 1
            if self._ran:  # a fused update is not undone
                done.half = True
            if self._is_broken or any(self._states[id(one)].is_spoilt for one in self._copied):
                done.half |= self._is_broken  # gradients that are spoilt are computed again, weights are not
                return done
        return done

    def _settle(self, done: Done, level: int) -> None:
        """An update was made, at some level; where nothing is copied, there are none."""
        done.rungs = _RUNGS[:level]
        if level > self.footing.level:
            _log.warning("Memory ran short in an update: %s.", _RUNGS[level - 1])
        if level or not self.footing.is_calm:
            self.footing.settle(level)
        if self._scaler is not None and self._scaler.is_enabled():
            knows = not any(getattr(one, "_step_supports_amp_scaling", False) for one in self._optimizers)
            done.skipped = len(self._ran) < len(self._optimizers) if knows else None

    def _attempt(self, level: int, prepare: Callable[[], object] | None) -> Fault | None:
        spares = level > 0
        way = self._way(prepare, sparing=spares)
        self._copied = way.copied
        for one in way.copied:
            state = self._states[id(one)]
            state.host, state.ignores_gradients = spares, prepare is not None
        fault = way.transaction.run(lambda: self._work(way, prepare, one_by_one=level == len(_RUNGS)))
        if fault is not None:
            self._ran -= {id(one) for one in way.copied}
        return fault

    def _way(self, prepare: Callable[[], object] | None, *, sparing: bool) -> _Way:
        """How to go about it now: as in the last step, mostly."""
        whole = [one.holds(sparing=sparing) for one in self._whole]
        usual = prepare is None and not self._ran and not sparing
        if usual and self._usual is not None and self._usual[0] == whole:
            return self._usual[1]
        copied, last = self._sort(whole)
        keepers: list[Keeper] = [self._states[id(one)] for one in copied]
        if self._schedulers:  # also of those that have made their step
            keepers += [GroupOptions(one) for one in self._optimizers if one not in copied]
        if prepare is not None:
            keepers.append(GradientCopies(self.parameters))
        transaction = Transaction.of([*keepers, *self._others], lambda: self._progress.done)
        way = _Way(copied, last, transaction)
        if usual:
            self._usual = whole, way
        return way

    def _sort(self, whole: list[bool]) -> tuple[tuple[Optimizer, ...], tuple[Wholeness, ...]]:
        """Which of those that wait for their step are copied, and which not: fused ones last, which need no memory.

        Of those that take their memory first only one can be whole: the next one would ask when that one has written.
        """
        copied: list[Optimizer] = []
        asking: list[Wholeness] = []
        fused: list[Wholeness] = []
        for one, is_whole in zip(self._whole, whole, strict=True):
            if id(one.optimizer) in self._ran:
                continue
            if is_whole and one.is_fused:
                fused.append(one)
            elif is_whole and not asking:
                asking.append(one)
            else:
                copied.append(one.optimizer)
        last = (*asking, *fused)
        for one in last:
            self._states[id(one.optimizer)].forget()  # what was copied before they had any state
        return tuple(copied), last

    def _work(self, way: _Way, prepare: Callable[[], object] | None, *, one_by_one: bool) -> None:
        if prepare is not None:
            prepare()
        for optimizer in way.copied:
            if one_by_one:
                with _one_by_one(optimizer):
                    self._step(optimizer)
            else:
                self._step(optimizer)
            if id(optimizer) in self._ran:  # no scaler has skipped it
                self._states[id(optimizer)].learn(usual=not one_by_one)
        with self._hold if way.whole else NOTHING:
            for one in way.whole:
                self._step_whole(one)
            self._follow()
            self._progress.done = True  # last of all: from here on, an interrupt leaves the step as it is

    def _step_whole(self, one: Wholeness) -> None:
        """An update that can't be undone. If it ends half-way after all, it is known, and never repeated."""
        one.find_room()
        before = one.versions()
        try:
            self._step(one.optimizer)
        except BaseException:
            self._is_broken = one.versions() != before
            self._progress.begun |= self._is_broken
            raise
        self._progress.begun |= id(one.optimizer) in self._ran

    def _step(self, optimizer: Optimizer) -> None:
        if self._scaler is None:
            optimizer.step()
            self._ran.add(id(optimizer))
        else:
            self._scaler.step(optimizer)

    def _follow(self) -> None:
        if self._scaler is not None:
            self._scaler.update()
        if self._average is not None:
            self._average()
        for scheduler in self._schedulers:
            scheduler.step()


@contextlib.contextmanager
def _one_by_one(optimizer: Optimizer) -> Iterator[None]:
    """Without temporaries for all parameters at once."""
    groups = [group for group in optimizer.param_groups if "foreach" in group]
    before = [group["foreach"] for group in groups]
    for group in groups:
        group["foreach"] = False
    try:
        yield
    finally:
        for group, value in zip(groups, before, strict=True):
            group["foreach"] = value


def _number(returned: object) -> torch.Tensor | float | None:
    """The norm, if that is what a user's function returns."""
    if isinstance(returned, torch.Tensor):
        return returned.detach() if returned.numel() == 1 else None
    return returned if isinstance(returned, float) else None


def _is_whole(ema: Any, model: nn.Module) -> bool:
    """Whether an average says of itself that its update takes no memory, and it is one on a GPU: it can't run short."""
    return getattr(owner_of(ema), "updates_in_place", False) and all(one.is_cuda for one in model.parameters())


def _average(ema: Any, model: nn.Module) -> Callable[[], object]:
    """How an average of the weights is brought up to date.

    Raises:
        UsageError: it can't be, or what it changes can't be found and undone.
    """
    if not hasattr(owner_of(ema), "__dict__") or type(ema).__name__ == "function":
        raise UsageError("ema is a function, whose state can't be put back", "pass an object with update(model)")
    for name in ("update_parameters", "update"):
        update = getattr(ema, name, None)
        if callable(update):
            return lambda: _no_grad(update, model)
    if callable(ema):
        return lambda: _no_grad(ema, model)
    raise UsageError(f"ema is a {type(ema).__name__}", "pass an object with update(model) or update_parameters(model)")


def _no_grad(update: Callable[[nn.Module], object], model: nn.Module) -> None:
    with torch.no_grad():
        update(model)


def gradients_of(parameters: Sequence[nn.Parameter]) -> Iterator[torch.Tensor]:
    """The gradients that are there."""
    for parameter in parameters:
        if parameter.grad is not None:
            yield parameter.grad
