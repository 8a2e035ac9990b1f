"""Losses of Ultralytics' models in a form that can be split exactly.

Detection losses are divided by the sum of the target scores of the whole batch, which only the assignment of targets
knows, and then multiplied by the batch size.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor, nn
from ultralytics.nn.tasks import BaseModel
from ultralytics.utils import loss as criteria

from ..batch import batch_format, split_samples
from ..errors import UsageError
from ..losses import LossSum

_TARGET_SCORES = 2  # their position in what an assigner returns
_YOLO = batch_format("yolo")
_PER_IMAGE = ("sem_masks", "semantic_mask", "depth")


class BatchLoss:
    """The loss of a model's training batches, with its components for the log.

    Args:
        model: the model that is trained. Its criterion is created if it has none.

    Raises:
        UsageError: the model computes its loss in a way of its own.
    """

    def __init__(self, model: Any) -> None:
        if not isinstance(model, BaseModel) or type(model).loss is not BaseModel.loss:
            raise UsageError(
                f"the loss of a {type(model).__name__} can't be split", "train it without add_guard, in smaller batches"
            )
        if getattr(model, "criterion", None) is None:
            model.criterion = model.init_criterion()
        self._model, self._samples = model, 1
        self._items: Any = None  # of the last forward
        self._count: Any = None
        kind = type(model.criterion)
        self._is_sum = kind in {criteria.v8DetectionLoss, criteria.v8OBBLoss}
        self._is_mean = kind is criteria.v8ClassificationLoss

    def options(self) -> dict[str, Any]:
        """Return the options of the guard that tell it how to compute and split the loss."""
        options: dict[str, Any] = {"split": self.split, "samples": _count_images}
        if self._is_sum:
            return {**options, "forward": self._detection_sum, "metrics": self._weighted_items}
        if self._is_mean:
            return {**options, "forward": self._mean, "metrics": self._weighted_items, "reduction": "mean"}
        # Other losses have several divisors: of masks, of keypoints, of two heads.
        return {**options, "forward": _predict, "loss": self._of_whole_batch}

    def begin(self, batch: Mapping[str, Any]) -> None:
        """Set the batch to compute the loss of."""
        self._samples = len(batch["img"])

    def items(self, sums: Mapping[str, Any]) -> Any:
        """Return the components of the loss of the batch, from the sums of `metrics=`."""
        if not (self._is_sum or self._is_mean):
            return self._items
        count = sums["count"].clamp(min=1)
        if isinstance(self._items, dict):
            return {name: sums[name] / count for name in self._items}
        return sums["items"] / count

    def split(self, batch: Any, micro_batches: int) -> list[Any]:
        """Split a batch of the loader; masks belong to images or, without `overlap_mask`, to boxes."""
        if "batch_idx" not in batch:
            return split_samples(batch, len(batch["img"]), micro_batches)
        has_masks_of_images = getattr(self._model.args, "overlap_mask", True)
        names = {name for name in (*_PER_IMAGE, *(["masks"] if has_masks_of_images else [])) if name in batch}
        parts = list(_YOLO.split({name: value for name, value in batch.items() if name not in names}, micro_batches))
        start = 0
        for part in parts:
            end = start + len(part["img"])
            part.update((name, batch[name][start:end]) for name in names)
            start = end
        return parts

    def _detection_sum(self, model: Any, batch: Any) -> LossSum:
        """Return the loss as a sum over targets, with the divisor of this micro-batch."""
        predictions = _predict(model, batch)
        with _assigned_scores(model.criterion) as scores:
            loss, self._items = model.criterion(predictions, batch)
        count = scores[-1].detach().sum()
        self._count = count.clamp(min=1)
        return LossSum(loss.sum() * (self._count * (self._samples / len(batch["img"]))), count, min_count=1)

    def _mean(self, model: Any, batch: Any) -> Tensor:
        loss, self._items = model.criterion(_predict(model, batch), batch)
        total: Tensor = loss.sum()
        return total

    def _of_whole_batch(self, predictions: Any, batch: Any) -> Tensor:
        loss, self._items = self._model.criterion(predictions, batch)
        total: Tensor = loss.sum()
        return total

    def _weighted_items(self, outputs: Any, batch: Any) -> dict[str, Any]:
        """Return the components of a micro-batch so that their sums are those of the batch."""
        weight = self._count if self._is_sum else len(batch["img"])
        count = outputs.count if self._is_sum else outputs.new_tensor(weight)
        items = self._items if isinstance(self._items, dict) else {"items": self._items}
        return {**{name: value.detach() * weight for name, value in items.items()}, "count": count}


def _count_images(batch: Any) -> int:
    return len(batch["img"])


def _predict(model: Any, batch: Any) -> Any:
    return model.predict(batch["img"])


@contextlib.contextmanager
def _assigned_scores(criterion: Any) -> Iterator[list[Tensor]]:
    """Yield a list that receives the target scores of each assignment."""
    scores: list[Tensor] = []

    def remember(_: nn.Module, __: Any, output: Any) -> None:
        scores.append(output[_TARGET_SCORES])

    handle = criterion.assigner.register_forward_hook(remember)
    try:
        yield scores
    finally:
        handle.remove()
