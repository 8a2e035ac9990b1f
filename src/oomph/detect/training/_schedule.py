"""Learning rates, momentum and when the optimizer steps: pure functions of the iteration number.

Nothing is remembered from one iteration to the next, so that a resumed run can't disagree with an undisturbed one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from torch.optim import Optimizer

from ._hyperparameters import Recipe


@dataclass(frozen=True)
class Moment:
    """What holds at one iteration.

    Attributes:
        rate: of learning, for all parameters but biases; bias_rate: for those.
        momentum: of the optimizer.
        accumulate: batches that make an optimizer step at this time.
        steps: whether the optimizer steps after this batch.
        group: batches whose gradients are summed into the step that this one belongs to.
        ends: how many of those are the last of an epoch, which may have fewer images.
    """

    rate: float
    bias_rate: float
    momentum: float
    accumulate: int
    steps: bool
    group: int
    ends: int

    def images(self, batch: int, last: int) -> int:
        """Images of all batches of the step, if those at the end of an epoch have so many."""
        return (self.group - self.ends) * batch + self.ends * last


@dataclass(frozen=True)
class Schedule:
    """The course of a run.

    Attributes:
        recipe: the hyperparameters.
        batch: images of an iteration, over all ranks.
        per_epoch: iterations of an epoch.
        epochs: how many there are.
    """

    recipe: Recipe
    batch: int
    per_epoch: int
    epochs: int

    @property
    def iterations(self) -> int:
        """How many there are in all."""
        return self.per_epoch * self.epochs

    @property
    def warmup(self) -> int:
        """Iterations of the warm-up."""
        if self.recipe.warmup_epochs <= 0:
            return 0
        return max(round(self.recipe.warmup_epochs * self.per_epoch), self.recipe.least_warmup)

    @property
    def accumulate(self) -> int:
        """Batches that make an optimizer step once the warm-up is over."""
        return accumulation(self.batch, self.recipe.nominal_batch)

    @property
    def optimizer_steps(self) -> int:
        """How often the optimizer steps in all."""
        return int(self._steps.sum())

    def at(self, iteration: int) -> Moment:
        """What holds at an iteration, counted from 0 over the whole run."""
        epoch = iteration // self.per_epoch
        begin, group = (int(value) for value in self._groups[:, iteration])
        rate = self.recipe.rate * self.fall(epoch)
        return Moment(
            rate=self._ramp(iteration, 0.0, rate),
            bias_rate=self._ramp(iteration, self.recipe.warmup_bias_rate, rate),
            momentum=self._ramp(iteration, self.recipe.warmup_momentum, self.recipe.momentum),
            accumulate=self._accumulate(iteration),
            steps=bool(self._steps[iteration]),
            group=group,
            ends=(begin + group) // self.per_epoch - begin // self.per_epoch,
        )

    def fall(self, epoch: int) -> float:
        """The share of the learning rate that is left: a straight line over the epochs, or half a cosine."""
        done = epoch / self.epochs
        left = (1 + math.cos(math.pi * done)) / 2 if self.recipe.cosine else 1 - done
        return left * (1 - self.recipe.final_rate) + self.recipe.final_rate

    def _ramp(self, iteration: int, begin: float, end: float) -> float:
        if iteration > self.warmup or not self.warmup:
            return end
        return begin + (end - begin) * iteration / self.warmup

    def _accumulate(self, iteration: int) -> int:
        if iteration > self.warmup or not self.warmup:
            return self.accumulate
        return max(round(self._ramp(iteration, 1.0, self.recipe.nominal_batch / self.batch)), 1)

    @cached_property
    def _steps(self) -> NDArray[np.bool_]:
        """After which iterations the optimizer steps; after the last one always, so that no gradient is lost."""
        steps = np.zeros(self.iterations, dtype=bool)
        last = -1
        for iteration in range(self.iterations):
            if iteration - last >= self._accumulate(iteration):
                steps[iteration] = True
                last = iteration
        if len(steps):
            steps[-1] = True
        return steps

    @cached_property
    def _groups(self) -> NDArray[np.int64]:
        """The first of the iterations that share the optimizer step of each, and how many they are."""
        ends = np.flatnonzero(self._steps)
        sizes = np.diff(ends, prepend=-1)
        return np.repeat((ends + 1 - sizes, sizes), sizes, axis=1)


def set_rates(optimizer: Optimizer, moment: Moment) -> None:
    """Give an optimizer of `build_optimizer` what holds at a moment."""
    for group in optimizer.param_groups:
        group["lr"] = moment.bias_rate if group.get("name") == "biases" else moment.rate
        if "betas" in group:
            group["betas"] = (moment.momentum, group["betas"][1])
        else:
            group["momentum"] = moment.momentum


def should_stop(fitness: Sequence[float], patience: int) -> bool:
    """Whether so many epochs have gone by since the best one, the last of equals; a patience of 0 never ends.

    Of equals the last, because at first nothing is found at all, and that is no reason to end.
    """
    if not fitness or patience <= 0:
        return False
    best = max(range(len(fitness)), key=lambda epoch: (fitness[epoch], epoch))
    return len(fitness) - 1 - best >= patience


def accumulation(batch: int, nominal: int) -> int:
    """Batches that make up the nominal batch, at least one."""
    return max(round(nominal / batch), 1)
