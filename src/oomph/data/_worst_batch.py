"""The batch of a dataset that needs the most memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import UsageError, describe
from ._profile import DatasetProfile

Collate = Callable[[list[Any]], Any]


def worst_batch(dataset: Any, profile: DatasetProfile, collate: Collate | None = None) -> tuple[Any, int]:
    """Return a batch of a dataset's largest samples, and their number.

    Args:
        dataset: has `__getitem__` and `__len__`.
        profile: result of `profile_dataset`.
        collate: makes a batch of samples, as a DataLoader's `collate_fn`; torch's own by default.

    Raises:
        UsageError: the dataset has no numbered samples, or they can't be collated.
    """
    if not profile.worst_batch:
        raise UsageError("the dataset can only be iterated", "pass a dataset with __getitem__ and __len__")
    samples = [dataset[number] for number in profile.worst_batch]
    try:
        return (collate or _default_collate)(samples), len(samples)
    except Exception as error:  # the user's code
        raise UsageError(
            f"the dataset's largest samples can't be collated ({describe(error)})", "pass your collate_fn"
        ) from error


def _default_collate(samples: list[Any]) -> Any:
    from torch.utils.data import default_collate  # noqa: PLC0415  importing torch takes seconds

    return default_collate(samples)
