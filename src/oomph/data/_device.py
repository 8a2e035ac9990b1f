"""Batches on their way to a GPU, one ahead of the one in use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from .loader import Batch, Loader

if TYPE_CHECKING:
    import torch


def on_device(batches: Iterable[Batch], device: str | torch.device) -> Iterator[Batch]:
    """Batches with their images on a device, as bytes: a quarter of what floats would move.

    On a GPU each batch is copied to pinned memory, unless the loader's plan says no, and sent while the one before is
    in use; torch gives the pinned memory back when the copy is done. Elsewhere batches are passed on as they are.
    """
    import torch  # noqa: PLC0415

    # Asked for now, so that batches are being made before the first one is wanted.
    return _sent(iter(batches), torch.device(device), pinned=_pins(batches))


def _sent(batches: Iterator[Batch], target: torch.device, *, pinned: bool) -> Iterator[Batch]:
    if target.type != "cuda":
        for batch in batches:
            yield batch._replace(images=batch.images.to(target))
        return
    waiting: Batch | None = None
    for batch in batches:
        images = batch.images.pin_memory() if pinned else batch.images
        sent = batch._replace(images=images.to(target, non_blocking=True))
        if waiting is not None:
            yield waiting
        waiting = sent
    if waiting is not None:
        yield waiting


def _pins(batches: Iterable[Batch]) -> bool:
    """Whether there is memory to pin; a plan that knew of no GPU didn't think of it."""
    if not isinstance(batches, Loader):
        return True
    plan = batches.plan
    return plan.pin or (plan.options.pin is None and not plan.room.gpu)
