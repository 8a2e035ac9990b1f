"""Work that happens whole or not at all."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.optim import Optimizer

from ..errors import OomphError
from ._fault import Fault, catch, free, persist
from ._keepers import Buffers, GradientCopies, Keeper, ObjectState, OptimizerState, all_parameters
from ._randomness import Randomness


class Transaction:
    """Work that happens whole or not at all.

        transaction = oomph.Transaction(model, optimizer, scaler)
        fault = transaction.run(lambda: train_on(batch))
        if fault is not None:  # memory ran short, everything is as before, nothing of the attempt is held any more
            ...

    Args:
        things: what the work changes. Of a module, its buffers and the gradients of its parameters; of an optimizer,
            its parameters, their gradients and its state, which are copied; of any other object, its attributes and
            what is in them. Random states are kept in any case.
        device: where the work runs; that of the first module's parameters if None.
    """

    def __init__(self, *things: object, device: torch.device | str | None = None) -> None:
        self._keepers: list[Keeper] = [Randomness(_device(things, device)), *_keepers(things)]
        self._is_final: Callable[[], bool] = _never

    @classmethod
    def of(cls, keepers: Iterable[Keeper], is_final: Callable[[], bool] | None = None) -> Transaction:
        """A transaction of exactly these keepers.

        Args:
            keepers: what is put back.
            is_final: whether the work must stay as it is now, also if an error or an interrupt follows.
        """
        made = cls.__new__(cls)
        made._keepers, made._is_final = list(keepers), is_final or _never  # noqa: SLF001  its own
        return made

    def run(self, work: Callable[[], object]) -> Fault | None:
        """Do the work once. None if it happened; what ran short if it didn't, with everything put back.

        Any other error passes through, and everything is put back before.
        """
        if not self._keepers:
            return catch(work)
        fault = self.attempt(work)
        self.let_go()
        return fault

    def attempt(self, work: Callable[[], object]) -> Fault | None:
        """As `run`, but what was taken is kept: the work can still be put back after it happened."""
        try:
            fault = catch(self._take_all)
            fault = catch(work) if fault is None or self._take_again() is None else fault
        except BaseException:
            self.undo()
            raise
        if fault is not None:
            self.put_back()
        return fault

    def insist(self, work: Callable[[], object]) -> None:
        """As `attempt`, but an error of memory passes through like any other, with its own traceback."""
        try:
            self._take_all()
            work()
        except BaseException:
            self.undo()
            raise

    def put_back(self) -> None:
        """Make everything as it was, also if memory runs short again meanwhile.

        Raises:
            OomphError: it can't be done.
        """
        for keeper in self._keepers:
            persist(keeper.put_back)

    def let_go(self) -> None:
        """Forget it: the work is done, or won't be."""
        for keeper in self._keepers:
            keeper.let_go()

    def undo(self) -> None:
        """Put back what can be and forget it, quietly: another error is on its way and is the one to be seen."""
        try:
            if not self._is_final():
                for keeper in self._keepers:
                    with contextlib.suppress(OomphError):
                        persist(keeper.put_back)
        finally:
            self.let_go()

    def _take_again(self) -> Fault | None:
        """Remember how everything is, after freeing, because there was no memory for it."""
        self.put_back()
        free(collect=False)
        return catch(self._take_all)

    def _take_all(self) -> None:
        for keeper in self._keepers:
            keeper.take()


@dataclass
class Progress:
    """How far a step is that can't be undone any more.

    Attributes:
        begun: weights were updated of which there is no copy.
        done: everything has happened.
    """

    begun: bool = False
    done: bool = False

    def restart(self) -> None:
        """A step begins."""
        self.begun = self.done = False

    def is_final(self) -> bool:
        """Whether it must not be undone."""
        return self.begun or self.done


def _never() -> bool:
    return False


def _keepers(things: Sequence[object]) -> Iterator[Keeper]:
    modules = [thing for thing in things if isinstance(thing, nn.Module)]
    optimizers = [thing for thing in things if isinstance(thing, Optimizer)]
    yield GradientCopies(all_parameters(modules, optimizers))
    for thing in things:
        if isinstance(thing, nn.Module):
            yield Buffers(thing)
        elif isinstance(thing, Optimizer):
            yield OptimizerState(thing)
        elif thing is not None:
            yield ObjectState(thing)


def _device(things: Iterable[object], device: torch.device | str | None) -> torch.device:
    if device is not None:
        return torch.device(device)
    modules = [thing for thing in things if isinstance(thing, nn.Module)]
    first = next((one for module in modules for one in module.parameters()), None)
    return torch.device("cpu") if first is None else first.device
