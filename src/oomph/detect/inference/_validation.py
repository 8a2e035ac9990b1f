"""Run a detector over a split and collect its predictions."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ...data import Letterbox, Loader, Tile, Tiles
from ..dataset import IndexedSplit, LoadConfig, RectangularSampler, RectLetterboxSamples, tile_val_loader
from ..metrics import ImageResult
from ..model import VAL_NMS, NmsConfig, nms
from ._results import letterbox_result, merge_tile_results


class EvaluateFunction(Protocol):
    """A guard's `evaluate`, or `run_unguarded`."""

    def __call__(
        self, loader: Iterable[Any], function: Callable[[nn.Module, Any], Any], *, model: nn.Module
    ) -> list[Any]:
        """Call the function with the model and each batch, and return its results."""
        ...


def validation_loader(split: IndexedSplit, config: LoadConfig, tiles: Tiles | None = None) -> Loader:
    """Return a loader of rectangular batches, or of the tiles that cover the images."""
    if tiles is not None:
        return tile_val_loader(split, tiles, config)
    return Loader(
        split.index,
        config.imgsz,
        config.batch,
        builder=RectLetterboxSamples(config.imgsz),
        sampler=RectangularSampler(split.shapes, config.imgsz, config.batch, config.shard),
        budget=config.budget,
        threads=config.threads,
        on_error="drop",
    )


def validate(
    model: nn.Module,
    split: IndexedSplit,
    loader: Loader,
    evaluate: EvaluateFunction,
    nms_config: NmsConfig = VAL_NMS,
) -> list[ImageResult]:
    """Return predictions and labels of every image, in pixels of the images."""
    results = results_by_image(model, split, loader, evaluate, nms_config)
    return [results[image] for image in sorted(results)]


def results_by_image(
    model: nn.Module,
    split: IndexedSplit,
    loader: Loader,
    evaluate: EvaluateFunction,
    nms_config: NmsConfig = VAL_NMS,
) -> dict[int, ImageResult]:
    """Return predictions and labels by image number: only images of the loader's rank that can be decoded."""
    placements: dict[int, Letterbox | Tile] = {}

    def batches() -> Iterator[tuple[Tensor, Tensor]]:
        for batch in loader:
            placements.update(zip(batch.indices.tolist(), batch.targets, strict=True))
            yield batch.images, batch.indices

    predictions: dict[int, Tensor] = {}
    for rows in evaluate(batches(), make_predictor(nms_config), model=model):
        predictions.update(rows)
    tiles = {sample: place for sample, place in placements.items() if isinstance(place, Tile)}
    if tiles:
        return merge_tile_results(predictions, tiles, split, agnostic=nms_config.agnostic)
    letterboxes = {image: place for image, place in placements.items() if isinstance(place, Letterbox)}
    return {
        image: letterbox_result(predictions[image], letterboxes[image], split.labels.of(image))
        for image in sorted(predictions)
    }


def make_predictor(nms_config: NmsConfig) -> Callable[[nn.Module, Any], list[tuple[int, Tensor]]]:
    """Return the function that runs model and NMS on a micro-batch (images, sample numbers)."""

    def predict(model: nn.Module, batch: Sequence[Tensor]) -> list[tuple[int, Tensor]]:
        images, numbers = batch
        # In full precision, because the coordinates of boxes are scored.
        with torch.autocast(images.device.type, enabled=False):
            boxes = nms(model(images)[0].float(), nms_config)
        return [(int(number), rows.cpu()) for number, rows in zip(numbers.tolist(), boxes, strict=True)]

    return predict


@torch.no_grad()
def run_unguarded(loader: Iterable[Any], function: Callable[[nn.Module, Any], Any], *, model: nn.Module) -> list[Any]:
    """Run a function over batches without a guard."""
    model.eval()
    device = next(itertools.chain(model.parameters(), model.buffers())).device
    return [function(model, (images.to(device), numbers)) for images, numbers in loader]
