"""Training batches with the requested number of samples, from the script's own DataLoaders."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch.utils.data import BatchSampler, DataLoader
from torch.utils.data.dataloader import _SingleProcessDataLoaderIter

from ..errors import UsageError

# The batches of a few steps are loaded in this process.
_IN_PROCESS = {
    "num_workers": 0,
    "pin_memory": False,
    "timeout": 0,
    "multiprocessing_context": None,
    "prefetch_factor": None,
    "persistent_workers": False,
}
_PATIENCE = 64  # backward passes in an epoch without an optimizer step


class Progress(Protocol):
    """How far the script has trained."""

    @property
    def backward_passes(self) -> int:
        """The backward passes so far."""

    @property
    def optimizer_steps(self) -> int:
        """The optimizer steps so far."""

    def start_batch(self) -> None:
        """Note that a batch was loaded."""


class TrainingLoaders:
    """The DataLoaders that a script trains with.

    The first of them gets batches of the requested number of samples, the others in proportion. An epoch in which the
    script trains does not end, so that no validation and no checkpoint follows it, unless its optimizer waits for the
    end.

    Args:
        batch: samples per batch; the script's own if None.
        progress: how far the script has trained.
    """

    def __init__(self, batch: int | None, progress: Progress) -> None:
        self.batch, self.progress = batch, progress
        self.samples: int | None = None
        self.batches = 0
        self._first: DataLoader[Any] | None = None
        self._scale = 1.0

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Replace the iteration of all DataLoaders."""
        init, iterate = DataLoader.__init__, DataLoader.__iter__
        signature = inspect.signature(init)

        @functools.wraps(init)
        def in_process(*args: Any, **kwargs: Any) -> None:
            bound = signature.bind(*args, **kwargs)
            bound.arguments.update({name: value for name, value in _IN_PROCESS.items() if name in bound.arguments})
            init(*bound.args, **bound.kwargs)

        DataLoader.__init__ = in_process  # type: ignore[method-assign]
        DataLoader.__iter__ = lambda loader: _ResizedBatches(loader, self)  # type: ignore[method-assign, assignment, return-value]
        try:
            yield
        finally:
            DataLoader.__init__ = init  # type: ignore[method-assign]
            DataLoader.__iter__ = iterate  # type: ignore[method-assign]

    def iterate(self, loader: DataLoader[Any]) -> Iterator[Any]:
        """Return the iterator of one epoch."""
        iterator = _SingleProcessDataLoaderIter(loader)
        if not _is_training() or loader.batch_sampler is None:
            return iterator
        if self.batch is not None:
            samples = _batch_size(loader)
            if self._first is None:
                self._scale = self.batch / samples
            iterator._sampler_iter = _regroup(loader.batch_sampler, max(round(samples * self._scale), 1))  # noqa: SLF001
        return iterator

    def count(self, loader: DataLoader[Any]) -> None:
        """Count a batch of the loader that the script trains with."""
        if not _is_training():
            return
        if self._first is None:
            if self.batch is not None and loader.batch_sampler is None:
                raise UsageError(
                    "its DataLoader has no batch size, because its dataset yields whole batches",
                    "omit --batch, and pass the script's own flag after --",
                )
            self._first = loader
            self.samples = self.batch or (None if loader.batch_sampler is None else _batch_size(loader))
        if loader is self._first:
            self.batches += 1
            self.progress.start_batch()


class _ResizedBatches:
    """The iterator of a DataLoader."""

    def __init__(self, loader: DataLoader[Any], loaders: TrainingLoaders) -> None:
        self.loader, self.loaders = loader, loaders
        self._iterator: Iterator[Any] | None = None
        self._backward_passes = loaders.progress.backward_passes
        self._optimizer_steps = loaders.progress.optimizer_steps

    def __iter__(self) -> Iterator[Any]:
        return self

    def __len__(self) -> int:
        return len(self.loader)

    def __next__(self) -> Any:
        if self._iterator is None:
            self._iterator = self.loaders.iterate(self.loader)
        try:
            batch = next(self._iterator)
        except StopIteration:
            if self._may_end():
                raise
            self._iterator = self.loaders.iterate(self.loader)
            batch = next(self._iterator)
        self.loaders.count(self.loader)
        return batch

    def _may_end(self) -> bool:
        """Return True if the script reads its data without training, or accumulates gradients over the epoch."""
        progress = self.loaders.progress
        passes = progress.backward_passes - self._backward_passes
        has_stepped = progress.optimizer_steps > self._optimizer_steps
        return passes == 0 or (passes >= _PATIENCE and not has_stepped)


def _is_training() -> bool:
    return torch.is_grad_enabled() and not torch.is_inference_mode_enabled()


def _batch_size(loader: DataLoader[Any]) -> int:
    size = loader.batch_size or getattr(loader.batch_sampler, "batch_size", None)
    return size if isinstance(size, int) else len(next(iter(loader.batch_sampler or [[0]])))


def _regroup(sampler: Iterable[Any], samples: int) -> Iterator[list[Any]]:
    """Yield lists of `samples` indices; the indices of a short epoch are repeated."""
    is_plain = type(sampler) is BatchSampler
    indices = iter(sampler.sampler) if is_plain else itertools.chain.from_iterable(sampler)  # type: ignore[attr-defined]
    batch = list(itertools.islice(indices, samples))
    if batch and len(batch) < samples:
        yield [*itertools.islice(itertools.cycle(batch), samples)]
        return
    while len(batch) == samples:
        yield batch
        batch = list(itertools.islice(indices, samples))
