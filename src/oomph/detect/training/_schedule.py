"""Learning rates, momentum and update iterations as pure functions of the iteration number.

Nothing is remembered between iterations, so a resumed run can't deviate from an uninterrupted one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from torch.optim import Optimizer

from ._hyperparameters import Hyperparameters


@dataclass(frozen=True)
class ScheduleStep:
    """Schedule values of one iteration.

    Attributes:
        lr: learning rate of all parameters but biases.
        bias_lr: learning rate of biases.
        momentum: momentum of the optimizer.
        accumulate: current number of batches per update.
        updates: True if the optimizer updates the weights after this batch.
        group: number of batches in the update that this batch belongs to.
        short_batches: how many of those are the last of an epoch, which may have fewer images.
    """

    lr: float
    bias_lr: float
    momentum: float
    accumulate: int
    updates: bool
    group: int
    short_batches: int

    def update_images(self, batch: int, last_batch: int) -> int:
        """Return the images of the whole update, for a batch size and the size of an epoch's last batch."""
        return (self.group - self.short_batches) * batch + self.short_batches * last_batch


@dataclass(frozen=True)
class Schedule:
    """The schedule of a run.

    Attributes:
        hyp: hyperparameters.
        batch: images per iteration, over all ranks.
        iterations_per_epoch: batches of an epoch.
        epochs: number of epochs.
    """

    hyp: Hyperparameters
    batch: int
    iterations_per_epoch: int
    epochs: int

    @property
    def iterations(self) -> int:
        """Number of iterations of the run."""
        return self.iterations_per_epoch * self.epochs

    @property
    def warmup_iterations(self) -> int:
        """Number of iterations of the warm-up."""
        if self.hyp.warmup_epochs <= 0:
            return 0
        least = self.hyp.min_warmup_iterations * (self.accumulate if self.hyp.same_updates else 1)
        return max(round(self.hyp.warmup_epochs * self.iterations_per_epoch), least)

    @property
    def accumulate(self) -> int:
        """Batches per update after the warm-up."""
        return accumulation(self.batch, self.hyp.nominal_batch)

    @property
    def update_count(self) -> int:
        """Number of optimizer updates of the run."""
        return int(self._updates.sum())

    def at(self, iteration: int) -> ScheduleStep:
        """Return the schedule values of an iteration, counted from 0 over the whole run."""
        begin, group = (int(value) for value in self._groups[:, iteration])
        lr = self.hyp.lr0 * self.lr_factor(iteration // self.iterations_per_epoch)
        return ScheduleStep(
            lr=self._ramp(iteration, 0.0, lr),
            bias_lr=self._ramp(iteration, self.hyp.warmup_bias_lr, lr),
            momentum=self._ramp(iteration, self.hyp.warmup_momentum, self.hyp.momentum),
            accumulate=self._accumulate(iteration),
            updates=bool(self._updates[iteration]),
            group=group,
            short_batches=(begin + group) // self.iterations_per_epoch - begin // self.iterations_per_epoch,
        )

    def lr_factor(self, epoch: int) -> float:
        """Return the learning rate of an epoch as a fraction of `lr0`: linear or cosine decay to `lrf`."""
        progress = epoch / self.epochs
        remaining = (1 + math.cos(math.pi * progress)) / 2 if self.hyp.cos_lr else 1 - progress
        return remaining * (1 - self.hyp.lrf) + self.hyp.lrf

    def _ramp(self, iteration: int, begin: float, end: float) -> float:
        warmup = self.warmup_iterations
        return end if iteration > warmup or not warmup else begin + (end - begin) * iteration / warmup

    def _accumulate(self, iteration: int) -> int:
        warmup = self.warmup_iterations
        if iteration > warmup or not warmup or self.hyp.same_updates:
            return self.accumulate
        return max(round(self._ramp(iteration, 1.0, self.hyp.nominal_batch / self.batch)), 1)

    @cached_property
    def _updates(self) -> NDArray[np.bool_]:
        """True for iterations that end with an update; the last one always does, so that no gradient is lost."""
        updates = np.zeros(self.iterations, dtype=bool)
        last = -1
        for iteration in range(self.iterations):
            ends_epoch = self.hyp.same_updates and (iteration + 1) % self.iterations_per_epoch == 0
            if ends_epoch or iteration - last >= self._accumulate(iteration):
                updates[iteration] = True
                last = iteration
        if len(updates):
            updates[-1] = True
        return updates

    @cached_property
    def _groups(self) -> NDArray[np.int64]:
        """For each iteration, the first iteration of its update and the update's number of iterations."""
        ends = np.flatnonzero(self._updates)
        sizes = np.diff(ends, prepend=-1)
        return np.repeat((ends + 1 - sizes, sizes), sizes, axis=1)


def set_lr(optimizer: Optimizer, step: ScheduleStep) -> None:
    """Set learning rates and momentum of an optimizer from `build_optimizer`."""
    for group in optimizer.param_groups:
        group["lr"] = step.bias_lr if group.get("name") == "biases" else step.lr
        if "betas" in group:
            group["betas"] = (step.momentum, group["betas"][1])
        else:
            group["momentum"] = step.momentum


def should_stop(fitness: Sequence[float], patience: int) -> bool:
    """Return True if `patience` epochs have passed since the best one; a patience of 0 never stops.

    Of equal epochs the last counts as best: at first nothing is detected at all, which is no reason to stop.
    """
    if not fitness or patience <= 0:
        return False
    best = max(range(len(fitness)), key=lambda epoch: (fitness[epoch], epoch))
    return len(fitness) - 1 - best >= patience


def accumulation(batch: int, nominal_batch: int) -> int:
    """Return the number of batches that make up the nominal batch, at least one."""
    return max(round(nominal_batch / batch), 1)
