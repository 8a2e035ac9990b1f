"""Work that happens completely or not at all."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.optim import Optimizer

from ..errors import OomphError
from ._caught_oom import CaughtOom, DumpMemory, catch_oom, caught_oom, free_memory, retry_on_oom
from .snapshots import (
    BufferSnapshot,
    GradSnapshot,
    ModuleAttributeSnapshot,
    ObjectSnapshot,
    OptimizerSnapshot,
    Restore,
    RngSnapshot,
    Snapshot,
    all_parameters,
)


class Transaction:
    """Work that happens completely or not at all.

        transaction = oomph.Transaction(model, optimizer, scaler)
        oom = transaction.run(lambda: train_on(batch))
        if oom is not None:  # out of memory; everything is as before, and nothing of the attempt is in memory
            ...

    Args:
        objects: the objects that the work changes. Of a module, its buffers, its attributes and the gradients of its
            parameters are restored; of an optimizer its parameters, their gradients and its state; of any other object
            its `state_dict()`, or else its attributes. Random states are restored in any case.
        device: where the work runs; by default the device of the first module's parameters.
    """

    def __init__(self, *objects: object, device: torch.device | str | None = None) -> None:
        self._snapshots: list[Snapshot] = [RngSnapshot(_find_device(objects, device)), *_snapshots_of(objects)]
        self._is_committed = _never
        self._dump_memory: DumpMemory | None = None
        self._restores: list[Restore] = []

    @classmethod
    def of(
        cls,
        snapshots: Iterable[Snapshot],
        is_committed: Callable[[], bool] | None = None,
        dump_memory: DumpMemory | None = None,
    ) -> Transaction:
        """Build a transaction from snapshots.

        Args:
            snapshots: the state to restore.
            is_committed: returns True once the work must stay, even if an error or an interrupt follows.
            dump_memory: called when the work runs out of memory, before anything of it is freed.
        """
        transaction = cls()
        transaction._snapshots, transaction._is_committed = list(snapshots), is_committed or _never
        transaction._dump_memory = dump_memory
        return transaction

    def run(self, work: Callable[[], object]) -> CaughtOom | None:
        """Call the function once; return the out-of-memory error if it ran out of memory, with everything restored.

        Any other error propagates after everything was restored.
        """
        oom = self.try_run(work)
        self.release()
        return oom

    def try_run(self, work: Callable[[], object]) -> CaughtOom | None:
        """Call the function like `run`, but keep the snapshots: work that succeeded can still be restored."""
        try:
            oom = self._capture()
            if oom is None:
                try:
                    work()
                except Exception as error:
                    oom = caught_oom(error, self._dump_memory)
                    if oom is None:
                        raise
            if oom is not None:  # after the except block, which keeps the error's frames alive
                self.restore()
        except BaseException:  # also an interrupt during the restore
            self.rollback()
            raise
        return oom

    def run_uncaught(self, work: Callable[[], object]) -> None:
        """Call the function; every error propagates with its own traceback, after everything was restored."""
        try:
            self._capture_all()
            work()
        except BaseException:
            self.rollback()
            raise

    def restore(self) -> None:
        """Restore every snapshot, freeing memory and trying again if memory runs out meanwhile.

        Raises:
            OomphError: a snapshot can't be restored.
        """
        for restore in self._restores:
            retry_on_oom(restore)

    def release(self) -> None:
        """Free the snapshots."""
        self._restores = []

    def rollback(self) -> None:
        """Restore what can be restored unless the work is committed, then release.

        Raises nothing: the caller is about to raise another error, the one that users should see.
        """
        try:
            if not self._is_committed():
                for restore in self._restores:
                    with contextlib.suppress(OomphError):
                        retry_on_oom(restore)
        finally:
            self.release()

    def _capture(self) -> CaughtOom | None:
        """Capture every snapshot; if there is no memory for that, free some and try once more."""
        if catch_oom(self._capture_all) is None:
            return None
        free_memory(collect=False)
        return catch_oom(self._capture_all)

    def _capture_all(self) -> None:
        self._restores = []
        for snapshot in self._snapshots:
            self._restores.append(snapshot.capture())


def _never() -> bool:
    return False


@dataclass
class CommitState:
    """How much of a step can no longer be undone.

    Attributes:
        partial: weights without a backup were updated.
        committed: the whole step has happened.
    """

    partial: bool = False
    committed: bool = False

    def is_final(self) -> bool:
        """Return True if the step must not be undone."""
        return self.partial or self.committed


def _snapshots_of(objects: Sequence[object]) -> Iterator[Snapshot]:
    modules = [item for item in objects if isinstance(item, nn.Module)]
    optimizers = [item for item in objects if isinstance(item, Optimizer)]
    yield GradSnapshot(all_parameters(modules, optimizers))
    for item in objects:
        if isinstance(item, nn.Module):
            yield BufferSnapshot(item)
            yield ModuleAttributeSnapshot(item)
        elif isinstance(item, Optimizer):
            yield OptimizerSnapshot(item)
        elif item is not None:
            yield ObjectSnapshot(item, exclude=[*modules, *optimizers])


def _find_device(objects: Iterable[object], device: torch.device | str | None) -> torch.device:
    if device is not None:
        return torch.device(device)
    parameters = (param for item in objects if isinstance(item, nn.Module) for param in item.parameters())
    first = next(parameters, None)
    return torch.device("cpu") if first is None else first.device
