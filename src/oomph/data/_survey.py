"""Any data set, looked at for its memory: the largest sample, the worst batch, what loading it takes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from ..errors import UsageError
from ._host import LoaderMemory, LoaderWorkload, predict_loader_memory

_LOOK = 128  # samples that are looked at when sizes aren't told


@dataclass(frozen=True)
class DatasetProfile:
    """What a data set asks of the host.

    Attributes:
        sample: bytes of the largest sample.
        batch: bytes of the worst batch, every sample of it as large as its largest.
        worst: the samples of that batch; empty where samples have no numbers.
        exact: every sample was looked at; a part of them otherwise.
        load: how it is loaded.
        host: what that takes at most.
    """

    sample: int
    batch: int
    worst: tuple[int, ...]
    exact: bool
    load: LoaderWorkload
    host: LoaderMemory


def profile_dataset(
    dataset: Any,
    batches: int | Iterable[Sequence[int]],
    size_of: Callable[[int], int] | None = None,
    load: LoaderWorkload | None = None,
) -> DatasetProfile:
    """Look at a map-style or iterable data set as a DataLoader would load it.

    Args:
        dataset: has `__getitem__` and `__len__`, or is iterated.
        batches: samples of a batch, or the batches themselves (a batch sampler that buckets by length).
        size_of: bytes of a sample by its number, where that is known without making it; samples are made otherwise,
            some of them when there are many.
        load: workers, prefetch and the rest; its batch and sample are filled in here.

    Raises:
        UsageError: there is nothing in it.
    """
    count = len(dataset) if hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__") else None
    sizes, exact = _sizes(dataset, count, size_of)
    if not sizes:
        raise UsageError("the data set is empty", "look at what it is made of")
    chosen = _worst(sizes, batches)
    largest = max(sizes.get(number, 0) for number in chosen) if chosen else max(sizes.values())
    many = batches if isinstance(batches, int) and count is None else max(len(chosen), 1)
    asked = load or LoaderWorkload(batch=many, sample=largest, decode=0)
    filled = dataclasses.replace(asked, batch=many, sample=largest)
    numbers = tuple(chosen) if count is not None else ()
    return DatasetProfile(max(sizes.values()), largest * many, numbers, exact, filled, predict_loader_memory(filled))


def _sizes(dataset: Any, count: int | None, size_of: Callable[[int], int] | None) -> tuple[dict[int, int], bool]:
    if count is None:
        looked = list(islice((sample_bytes(sample) for sample in dataset), _LOOK + 1))
        return dict(enumerate(looked[:_LOOK])), len(looked) <= _LOOK
    if size_of is not None:
        return {number: size_of(number) for number in range(count)}, True
    numbers = range(count) if count <= _LOOK else np.linspace(0, count - 1, _LOOK).astype(int).tolist()
    return {number: sample_bytes(dataset[number]) for number in numbers}, count <= _LOOK


def _worst(sizes: dict[int, int], batches: int | Iterable[Sequence[int]]) -> list[int]:
    """The batch whose samples, padded to its longest, take most."""
    if isinstance(batches, int):
        return sorted(sizes, key=lambda number: -sizes[number])[:batches]
    known = ([number for number in batch if number in sizes] for batch in batches)
    return max(known, key=lambda batch: len(batch) * max((sizes[n] for n in batch), default=0), default=[])


def sample_bytes(sample: Any) -> int:
    """Bytes of whatever a data set returns: tensors, arrays, images, in dicts, lists and dataclasses."""
    if hasattr(sample, "nbytes"):
        return int(sample.nbytes)
    if isinstance(sample, (bytes, bytearray, memoryview, str)):
        return len(sample)
    if isinstance(sample, dict):
        return sum(sample_bytes(value) for value in sample.values())
    if isinstance(sample, (list, tuple, set)):
        return sum(sample_bytes(value) for value in sample)
    if dataclasses.is_dataclass(sample) and not isinstance(sample, type):
        return sum(sample_bytes(getattr(sample, field.name)) for field in dataclasses.fields(sample))
    if hasattr(sample, "getbands") and hasattr(sample, "size"):  # an image of Pillow's
        return int(sample.size[0] * sample.size[1] * max(len(sample.getbands()), 1))
    return 8 if isinstance(sample, (bool, int, float)) else 0
