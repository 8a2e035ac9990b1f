"""Memory profile of any dataset: the largest sample, the worst batch, and the memory for loading it."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from ..errors import UsageError
from ._loader_memory import LoaderMemory, LoaderWorkload, predict_loader_memory

_MIN_MEASURED_SAMPLES = 128
_MEASURING_SECONDS = 5.0  # after which no more samples are measured


@dataclass(frozen=True)
class DatasetProfile:
    """Memory that loading a dataset needs.

    Attributes:
        sample_bytes: size of the largest sample.
        batch_bytes: size of the worst batch, with every sample padded to the largest one in it.
        worst_batch: the samples of that batch; empty for an iterable dataset.
        exact: every sample was measured; False if only some were.
        workload: how the dataset is loaded.
        memory: predicted host memory.
    """

    sample_bytes: int
    batch_bytes: int
    worst_batch: tuple[int, ...]
    exact: bool
    workload: LoaderWorkload
    memory: LoaderMemory


def profile_dataset(
    dataset: Any,
    batches: int | Iterable[Sequence[int]],
    size_of: Callable[[int], int] | None = None,
    workload: LoaderWorkload | None = None,
) -> DatasetProfile:
    """Measure the samples of a map-style or iterable dataset, and predict the memory of a DataLoader over it.

    Args:
        dataset: has `__getitem__` and `__len__`, or can be iterated.
        batches: samples per batch, or the batches themselves, such as those of a sampler that buckets by length.
        size_of: returns the bytes of a sample without loading it. By default samples are loaded and measured; of a
            large dataset, as many as five seconds allow, at least 128.
        workload: workers, prefetch and so on; its batch and sample size are replaced by the measured ones.

    Raises:
        UsageError: the dataset is empty.
    """
    count = len(dataset) if hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__") else None
    sizes, exact = _measure(dataset, count, size_of)
    if not sizes:
        raise UsageError("the dataset is empty", "pass a dataset with samples")
    worst = _worst_batch(sizes, batches)
    largest = max(sizes.get(number, 0) for number in worst) if worst else max(sizes.values())
    batch = batches if isinstance(batches, int) and count is None else max(len(worst), 1)
    requested = workload or LoaderWorkload(batch=batch, sample_bytes=largest, decode_bytes=0)
    measured = dataclasses.replace(requested, batch=batch, sample_bytes=largest)
    return DatasetProfile(
        sample_bytes=max(sizes.values()),
        batch_bytes=largest * batch,
        worst_batch=tuple(worst) if count is not None else (),
        exact=exact,
        workload=measured,
        memory=predict_loader_memory(measured),
    )


def _measure(dataset: Any, count: int | None, size_of: Callable[[int], int] | None) -> tuple[dict[int, int], bool]:
    """Return sample sizes by number, and True if all samples were measured."""
    if count is None:
        sizes = list(islice((sample_bytes(sample) for sample in dataset), _MIN_MEASURED_SAMPLES + 1))
        return dict(enumerate(sizes[:_MIN_MEASURED_SAMPLES])), len(sizes) <= _MIN_MEASURED_SAMPLES
    if size_of is not None:
        return {number: size_of(number) for number in range(count)}, True
    end, measured = time.monotonic() + _MEASURING_SECONDS, dict[int, int]()
    for number in np.random.default_rng(0).permutation(count).tolist():
        if len(measured) >= _MIN_MEASURED_SAMPLES and time.monotonic() > end:
            return measured, False
        measured[number] = sample_bytes(dataset[number])
    return measured, True


def _worst_batch(sizes: dict[int, int], batches: int | Iterable[Sequence[int]]) -> list[int]:
    """Return the batch that is largest after padding its samples to the longest one."""
    if isinstance(batches, int):
        return sorted(sizes, key=lambda number: -sizes[number])[:batches]
    measured = ([number for number in batch if number in sizes] for batch in batches)
    return max(measured, key=lambda batch: len(batch) * max((sizes[n] for n in batch), default=0), default=[])


def sample_bytes(sample: Any) -> int:
    """Return the bytes of a sample: tensors, arrays and images, also in dicts, lists and dataclasses."""
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
    if hasattr(sample, "getbands") and hasattr(sample, "size"):  # a Pillow image
        return int(sample.size[0] * sample.size[1] * max(len(sample.getbands()), 1))
    return 8 if isinstance(sample, (bool, int, float)) else 0
