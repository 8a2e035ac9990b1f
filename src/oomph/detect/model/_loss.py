"""The detection loss, and its exact split over micro-batches.

Box and class losses are means over positives. The number of positives depends on labels and grid alone. Counted for the
whole batch first (`normalizer`) and passed to each micro-batch, it makes the micro-batches' losses and gradients sum to
those of the batch.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  torch's convention

from ...errors import UsageError
from ._batch import DetectionBatch
from ._boxes import complete_iou
from ._matching import Candidates, Grids, count_positives, match_targets
from ._network import Yolov5, grid_sizes

OBJ_BALANCE = (4.0, 1.0, 0.4)  # objectness weights of the strides 8, 16 and 32
_REFERENCE_IMGSZ = 640
_REFERENCE_CLASSES = 80


@dataclass(frozen=True)
class LossGains:
    """Weights of the loss parts, before they are scaled to image size and number of classes."""

    box: float = 0.05
    obj: float = 1.0
    cls: float = 0.5


class Positives(NamedTuple):
    """Normalizer of a batch's loss; a tuple, so that the guard can move it to a device like a batch.

    Attributes:
        counts: positives of each level, (levels,).
        images: images of the batch.
    """

    counts: Tensor
    images: int


@dataclass(frozen=True)
class LossParts:
    """The loss of a batch or micro-batch; the parts of micro-batches sum to those of the batch.

    Attributes:
        total: the loss to differentiate: the sum of the parts times the images of the whole batch.
        box, obj, cls: the weighted parts, detached.
    """

    total: Tensor
    box: Tensor
    obj: Tensor
    cls: Tensor


class DetectionLoss:
    """YOLOv5's loss of raw levels against targets (n, 6): image, class, x, y, w, h as fractions.

    Levels of a channels_last network, which `oomph train` uses, are read in place; others are copied.

    Args:
        model: the network; its anchors are read at each call, so changed anchors take effect.
        gains: weights of the parts.
        imgsz: image size of the training, which scales objectness.
        anchor_t: maximum ratio between the sides of a box and of its anchor.
        label_smoothing: distance of the class targets from 0 and 1, in total.
    """

    def __init__(
        self,
        model: nn.Module,
        gains: LossGains | None = None,
        imgsz: int = _REFERENCE_IMGSZ,
        anchor_t: float = 4.0,
        label_smoothing: float = 0.0,
    ) -> None:
        gains = gains or LossGains()
        network = getattr(model, "module", model)  # unwrap DistributedDataParallel
        if not isinstance(network, Yolov5):
            raise UsageError(f"the model is a {type(network).__name__}", "pass a model built by oomph.detect.yolov5")
        self._head, self._anchor_t, self._smoothing = network.head, anchor_t, label_smoothing
        self._anchor_copy: tuple[object, Tensor] | None = None
        self._grid_cache: dict[tuple[object, ...], Grids] = {}
        self.classes = network.classes
        self.gains = LossGains(
            gains.box, gains.obj * (imgsz / _REFERENCE_IMGSZ) ** 2, gains.cls * self.classes / _REFERENCE_CLASSES
        )

    def __call__(self, outputs: Any, targets: Tensor, normalizer: Positives | None = None) -> Tensor:
        """Return the loss to differentiate."""
        return self.parts(outputs, targets, normalizer).total

    def normalizer(self, batch: DetectionBatch) -> Positives:
        """Count the positives of a whole batch (images, targets) for its micro-batches."""
        return self._positives(batch, self._anchors(batch[1].device))

    def cpu_normalizer(self) -> Callable[[DetectionBatch], Positives]:
        """Return a `normalizer` that counts on the CPU with the current anchors: it never waits for a GPU."""
        anchors = self._head.anchors.detach().cpu().clone()
        return lambda batch: self._positives(batch, anchors)

    def _positives(self, batch: DetectionBatch, anchors: Tensor) -> Positives:
        images, targets = batch[0], batch[1].float()
        grids = self._grids(targets, grid_sizes(images))
        return Positives(count_positives(targets, anchors, grids, self._anchor_t), len(images))

    def parts(self, outputs: Any, targets: Tensor, normalizer: Positives | None = None) -> LossParts:
        """Return the loss and its parts; `outputs` may be those of eval mode, decoded predictions first."""
        levels: Sequence[Tensor] = outputs if isinstance(outputs[1], Tensor) else outputs[1]
        targets = targets.to(levels[0].device, torch.float32)
        with torch.autocast(targets.device.type, enabled=False):
            anchors = self._anchors(targets.device).float()
            grids = self._grids(targets, [(level.shape[2], level.shape[3]) for level in levels])
            matches = match_targets(targets, anchors, grids, self._anchor_t)
            norm = normalizer or Positives(matches.positive.sum(1), len(levels[0]))
            counts = norm.counts.to(targets.device, non_blocking=True)
            weight = matches.positive / counts.clamp(min=1)[:, None]  # of each candidate in its level's mean
            cells = _cell_indices(matches, grids, levels[0].shape)
            *objectness, rows = _gather(cells, *(level.permute(0, 2, 3, 1, 4).flatten(0, 3) for level in levels))
            rows = rows.float()
            iou = complete_iou(decode_boxes(rows, matches.prior.flatten(0, 1)), matches.box.flatten(0, 1))
            box = ((1 - iou) * weight.flatten()).sum() * self.gains.box
            cells = cells.masked_fill(~matches.positive.flatten(), sum(map(len, objectness)))
            obj_targets = _objectness_targets(cells, iou.detach().clamp(min=0), [len(level) for level in objectness])
            obj = _objectness_loss(objectness, obj_targets, len(levels[0]) / norm.images) * self.gains.obj
            cls = self._class_loss(rows[:, 5:], matches.label.flatten(), weight) * self.gains.cls
            total = (box + obj + cls) * norm.images
        return LossParts(total, box.detach(), obj.detach(), cls.detach())

    def _anchors(self, device: torch.device) -> Tensor:
        """Return the anchors on a device. The copy is cached until they change: a new copy would wait for the GPU."""
        anchors = self._head.anchors
        if anchors.device == device:
            return anchors
        key = (device, anchors.data_ptr(), anchors._version)  # noqa: SLF001  counts in-place changes
        if self._anchor_copy is None or self._anchor_copy[0] != key:
            self._anchor_copy = (key, anchors.detach().to(device))
        return self._anchor_copy[1]

    def _grids(self, targets: Tensor, shapes: Sequence[tuple[int, int]]) -> Grids:
        """Return the grids of levels on the targets' device, cached: creating them would wait for the GPU."""
        if type(targets) is not Tensor:  # a fake tensor of a trace must not enter the cache
            return Grids.of(shapes, targets)
        key = (targets.device, *shapes)
        if key not in self._grid_cache:
            self._grid_cache[key] = Grids.of(shapes, targets)
        return self._grid_cache[key]

    def _class_loss(self, logits: Tensor, label: Tensor, weight: Tensor) -> Tensor:
        """Return the BCE of the classes, averaged over positives and classes."""
        if self.classes == 1:
            return logits.new_zeros(())
        targets = torch.full_like(logits, self._smoothing / 2).scatter_(1, label[:, None], 1 - self._smoothing / 2)
        weight = weight.view(-1, 1) / self.classes
        return F.binary_cross_entropy_with_logits(logits, targets, weight=weight, reduction="sum")


def decode_boxes(rows: Tensor, prior: Tensor) -> Tensor:
    """Decode rows of raw outputs into center and size, in cells."""
    sigmoid = rows[..., :4].sigmoid()
    return torch.cat((sigmoid[..., :2] * 2 - 0.5, (sigmoid[..., 2:] * 2) ** 2 * prior), -1)


def _cell_indices(matches: Candidates, grids: Grids, shape: torch.Size) -> Tensor:
    """Return each candidate's cell index over all levels, in the memory order of channels_last outputs."""
    images, anchors = shape[:2]
    wide, high = grids.sides.long().unbind(-1)
    size = images * anchors * wide * high
    cells = ((matches.image * high + matches.row) * wide + matches.column) * anchors + matches.anchor
    return (cells + size.cumsum(0) - size).flatten()


def _objectness_loss(logits: Sequence[Tensor], targets: Sequence[Tensor], batch_fraction: float) -> Tensor:
    """Return the BCE of objectness: a mean over the cells of each level, weighted by level.

    `batch_fraction` is the micro-batch's fraction of the batch's images, and so of its means.
    """
    means = [
        F.binary_cross_entropy_with_logits(level.float(), target, reduction="sum")
        * (balance * batch_fraction / len(level))
        for level, target, balance in zip(logits, targets, OBJ_BALANCE, strict=True)
    ]
    return torch.stack(means).sum()


def _objectness_targets(cells: Tensor, iou: Tensor, sizes: Sequence[int]) -> tuple[Tensor, ...]:
    """Return the objectness target of every cell: the IoU of its positive, of several the last in the table.

    Sorting finds the last one deterministically on every device; concurrent writes would not.

    Args:
        cells: cell of each candidate, over all levels; one past the last cell for negatives.
        iou: IoU of each candidate.
        sizes: number of cells of each level.
    """
    end = sum(sizes)
    cell, order = cells.sort(stable=True)
    repeated = torch.zeros_like(cell, dtype=torch.bool)
    repeated[:-1] = cell[1:] == cell[:-1]
    targets = iou.new_zeros(end + 1)  # the extra element absorbs negatives and repeats
    # masked_fill, not torch.where: the latter copies its scalar to the GPU, which synchronizes.
    targets[cell.masked_fill(repeated, end)] = iou[order]
    return torch.split(targets[:end], list(sizes))


class _GatherCells(torch.autograd.Function):
    """Gather the objectness of all cells and whole rows of the matched cells from levels given as (cells, outputs).

    Autograd would allocate a zero-filled gradient per level for each of the two and a third for their sum, while the
    activations are still alive. This backward allocates one gradient for all levels.
    """

    @staticmethod
    def forward(ctx: Any, cells: Tensor, *levels: Tensor) -> tuple[Tensor, ...]:
        ctx.save_for_backward(cells)
        ctx.sizes = [len(level) for level in levels]
        cells_by_level = cells.view(len(levels), -1)
        starts = itertools.accumulate(ctx.sizes, initial=0)
        rows = [level[index - start] for level, index, start in zip(levels, cells_by_level, starts, strict=False)]
        return *(level[:, 4].clone() for level in levels), torch.cat(rows)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        *objectness, rows = grads
        grad = rows.new_zeros(sum(ctx.sizes), rows.shape[1])
        grad.index_put_(ctx.saved_tensors, rows, accumulate=True)
        grad[:, 4] += torch.cat(objectness)
        return None, *grad.split(ctx.sizes)


_gather: Any = _GatherCells.apply  # torch doesn't type it
