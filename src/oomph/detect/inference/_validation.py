"""A detector run over a split: what it finds beside what is there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ...data import Letterbox, Loader, Tile, Tiles, default_budget
from ..dataset._indexed_split import Framed, Material, Rectangles
from ..dataset._tiles import grid_loader, stitched
from ..metrics._image_result import image_result
from ..metrics._scores import ImageResult
from ..model._nms import VALIDATION, Suppression, suppress
from ..training._dist import ALONE, Ranks

Found = tuple[int, Tensor]


class Evaluate(Protocol):
    """How pieces are run: a guard's `evaluate`, or a plain loop."""

    def __call__(
        self, loader: Iterable[Any], function: Callable[[nn.Module, Any], Any], *, model: nn.Module
    ) -> list[Any]:
        """Run the function over all pieces and return what it gave."""
        ...


def validation_loader(
    material: Material,
    size: int,
    batch: int,
    *,
    tiles: Tiles | None = None,
    ranks: Ranks = ALONE,
    threads: int | None = None,
) -> Loader:
    """Batches of images of like shape, or of the windows that cover them; those of one rank."""
    if tiles is not None:
        return grid_loader(material, tiles, size, batch, rank=ranks.rank, ranks=ranks.ranks, threads=threads)
    order = Rectangles(material.shapes, size, batch, ranks.rank, ranks.ranks)
    budget = decoding_budget(ranks)
    return Loader(
        material.index,
        size,
        batch,
        builder=Framed(size),
        sampler=order,
        budget=budget,
        threads=threads,
        on_error="drop",
    )


def decoding_budget(ranks: Ranks) -> int | None:
    """Bytes that each of several ranks on a machine may decode in; one is left to the loader's own plan."""
    return default_budget() // ranks.beside if ranks.are_several else None


def validate(
    model: nn.Module,
    material: Material,
    loader: Loader,
    evaluate: Evaluate,
    limits: Suppression = VALIDATION,
) -> list[ImageResult]:
    """What a model finds in every image, and what is there, in pixels of the images."""
    found = results_by_image(model, material, loader, evaluate, limits)
    return [found[at] for at in sorted(found)]


def results_by_image(
    model: nn.Module,
    material: Material,
    loader: Loader,
    evaluate: Evaluate,
    limits: Suppression = VALIDATION,
) -> dict[int, ImageResult]:
    """The same by the number of the image: a loader of one rank has some of them, and none that can't be decoded."""
    places: dict[int, Letterbox | Tile] = {}

    def batches() -> Iterator[tuple[Tensor, Tensor]]:
        for batch in loader:
            places.update(zip(batch.indices.tolist(), batch.targets, strict=True))
            yield batch.images, batch.indices

    found: dict[int, Tensor] = {}
    for rows in evaluate(batches(), finder(limits), model=model):
        found.update(rows)
    windows = {at: place for at, place in places.items() if isinstance(place, Tile)}
    if windows:
        return stitched(found, windows, material, across_classes=limits.across_classes)
    spots = {at: place for at, place in places.items() if isinstance(place, Letterbox)}
    return {at: image_result(found[at], spots[at], material.labels.of(at)) for at in sorted(found)}


def finder(limits: Suppression) -> Callable[[nn.Module, Any], list[Found]]:
    """What is done with a piece: boxes by the number of their image, on the CPU."""

    def find(model: nn.Module, piece: Sequence[Tensor]) -> list[Found]:
        images, indices = piece
        # In full precision: the places of boxes are what is measured.
        with torch.autocast(images.device.type, enabled=False):
            kept = suppress(model(images)[0].float(), limits)
        return [(int(at), boxes.cpu()) for at, boxes in zip(indices.tolist(), kept, strict=True)]

    return find


@torch.no_grad()
def plainly(loader: Iterable[Any], function: Callable[[nn.Module, Any], Any], *, model: nn.Module) -> list[Any]:
    """Run a function over batches without a guard."""
    model.eval()
    device = next(model.parameters()).device
    return [function(model, (images.to(device), indices)) for images, indices in loader]
