"""The detection loss, and its exact split over pieces of a batch.

Box and class losses are means over positives, whose number depends on labels and grid alone. Counted for the whole
batch first (`normalizer`) and handed to each piece, the pieces' losses sum to that of the batch, and so do gradients.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  torch's own name for it

from ...errors import UsageError
from ._boxes import complete_iou
from ._matching import Candidates, Grids, count, match
from ._network import Yolov5, grid_sizes

_BALANCE = (4.0, 1.0, 0.4)  # objectness of the strides 8, 16 and 32
_IMAGE = 640
_CLASSES = 80
Batch = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Gains:
    """What the parts of the loss weigh, before they are fitted to image size and number of classes."""

    box: float = 0.05
    objectness: float = 1.0
    classes: float = 0.5


class Positives(NamedTuple):
    """What the loss of a batch is divided by; a tuple, so that it can be moved to a device like a batch.

    Attributes:
        counts: positives of each level, (levels,).
        images: images of the batch.
    """

    counts: Tensor
    images: int


@dataclass(frozen=True)
class LossParts:
    """The loss of a batch or piece; parts of pieces sum to those of the batch, as `total` does.

    Attributes:
        total: what is differentiated: the sum of the parts times the images of the whole batch.
        box, objectness, classes: the parts, weighed, detached.
    """

    total: Tensor
    box: Tensor
    objectness: Tensor
    classes: Tensor


class DetectionLoss:
    """The loss of a YOLOv5 network's raw levels against targets (n, 6): image, class, x, y, w, h as fractions.

    Levels of a network in channels_last, as `oomph train` has it, are read where they lie; others are copied.

    Args:
        model: the network; its anchors are read at each call, so that new ones are heeded.
        gains: the weights of the parts.
        size: the image side that is trained with, which objectness is weighed by.
        ratio: how many times larger or smaller than its anchor a box may be.
        smoothing: what the targets of the classes keep away from 0 and 1, together.
    """

    def __init__(
        self,
        model: nn.Module,
        gains: Gains | None = None,
        size: int = _IMAGE,
        ratio: float = 4.0,
        smoothing: float = 0.0,
    ) -> None:
        gains = gains or Gains()
        network = getattr(model, "module", model)  # DistributedDataParallel keeps it there
        if not isinstance(network, Yolov5):
            raise UsageError(f"the model is a {type(network).__name__}", "give one that oomph.detect.yolov5 built")
        self._head, self._ratio, self._smoothing = network.head, ratio, smoothing
        self._copy: tuple[object, Tensor] | None = None
        self._known: dict[tuple[object, ...], Grids] = {}
        self.classes = network.classes
        self.gains = Gains(gains.box, gains.objectness * (size / _IMAGE) ** 2, gains.classes * self.classes / _CLASSES)

    def __call__(self, outputs: Any, targets: Tensor, normalizer: Positives | None = None) -> Tensor:
        """The loss to differentiate."""
        return self.parts(outputs, targets, normalizer).total

    def normalizer(self, batch: Batch) -> Positives:
        """Count the positives of a whole batch (images, targets), for its pieces to share."""
        return self._positives(batch, self._anchors(batch[1].device))

    def counter(self) -> Callable[[Batch], Positives]:
        """What counts as `normalizer` does, on the CPU and by the anchors of now, so that it never waits for a GPU."""
        anchors = self._head.anchors.detach().cpu().clone()
        return lambda batch: self._positives(batch, anchors)

    def _positives(self, batch: Batch, anchors: Tensor) -> Positives:
        images, targets = batch[0], batch[1].float()
        grids = self._grids(targets, grid_sizes(images))
        return Positives(count(targets, anchors, grids, self._ratio), len(images))

    def parts(self, outputs: Any, targets: Tensor, normalizer: Positives | None = None) -> LossParts:
        """The loss and what it is made of; `outputs` may be those of eval mode, decoded predictions first."""
        levels: Sequence[Tensor] = outputs if isinstance(outputs[1], Tensor) else outputs[1]
        targets = targets.to(levels[0].device, torch.float32)
        with torch.autocast(targets.device.type, enabled=False):
            anchors = self._anchors(targets.device).float()
            grids = self._grids(targets, [(level.shape[2], level.shape[3]) for level in levels])
            found = match(targets, anchors, grids, self._ratio)
            norm = normalizer or Positives(found.counts.sum(1), len(levels[0]))
            counts = norm.counts.to(targets.device, non_blocking=True)
            weight = found.counts / counts.clamp(min=1)[:, None]  # of each row in its mean
            cells = _cells(found, grids, levels[0].shape)
            *confidence, rows = _pick(cells, *(level.permute(0, 2, 3, 1, 4).flatten(0, 3) for level in levels))
            rows = rows.float()
            iou = complete_iou(_boxes(rows, found.prior.flatten(0, 1)), found.box.flatten(0, 1))
            box = ((1 - iou) * weight.flatten()).sum() * self.gains.box
            cells = cells.masked_fill(~found.counts.flatten(), sum(map(len, confidence)))
            wanted = _overlaps(cells, iou.detach().clamp(min=0), [len(level) for level in confidence])
            objectness = _objectness(confidence, wanted, len(levels[0]) / norm.images) * self.gains.objectness
            classes = self._classes(rows[:, 5:], found.label.flatten(), weight) * self.gains.classes
            total = (box + objectness + classes) * norm.images
        return LossParts(total, box.detach(), objectness.detach(), classes.detach())

    def _anchors(self, device: torch.device) -> Tensor:
        """The anchors on a device; a copy is kept until they change, since making one would wait for the GPU."""
        own = self._head.anchors
        if own.device == device:
            return own
        state = (device, own.data_ptr(), own._version)  # noqa: SLF001  counts changes in place
        if self._copy is None or self._copy[0] != state:
            self._copy = (state, own.detach().to(device))
        return self._copy[1]

    def _grids(self, targets: Tensor, shapes: Sequence[tuple[int, int]]) -> Grids:
        """Levels of such shapes where the targets are; kept, since making them would wait for the GPU."""
        if type(targets) is not Tensor:  # traced without data: nothing of that may be met again
            return Grids.of(shapes, targets)
        key = (targets.device, *shapes)
        if key not in self._known:
            self._known[key] = Grids.of(shapes, targets)
        return self._known[key]

    def _classes(self, odds: Tensor, label: Tensor, weight: Tensor) -> Tensor:
        """How far classes are from the labels: the mean over positives and classes."""
        if self.classes == 1:
            return odds.new_zeros(())
        wanted = torch.full_like(odds, self._smoothing / 2).scatter_(1, label[:, None], 1 - self._smoothing / 2)
        weight = weight.view(-1, 1) / self.classes
        return F.binary_cross_entropy_with_logits(odds, wanted, weight=weight, reduction="sum")


def _boxes(rows: Tensor, prior: Tensor) -> Tensor:
    """Centre and size, in cells, that rows of raw outputs stand for."""
    share = rows[:, :4].sigmoid()
    return torch.cat((share[:, :2] * 2 - 0.5, (share[:, 2:] * 2) ** 2 * prior), 1)


def _cells(found: Candidates, grids: Grids, shape: torch.Size) -> Tensor:
    """The number of each candidate's cell among those of all levels, in the order in which a GPU has them in memory."""
    images, anchors = shape[:2]
    wide, high = grids.sides.long().unbind(-1)
    size = images * anchors * wide * high
    cells = ((found.image * high + found.row) * wide + found.column) * anchors + found.anchor
    return (cells + size.cumsum(0) - size).flatten()


def _objectness(confidence: Sequence[Tensor], wanted: Sequence[Tensor], share: float) -> Tensor:
    """How far cells are from the overlap of what they found: means over the cells of a level, weighed by level.

    A piece has a share of the batch's images, and so of the means.
    """
    means = [
        F.binary_cross_entropy_with_logits(level.float(), want, reduction="sum") * (balance * share / len(level))
        for level, want, balance in zip(confidence, wanted, _BALANCE, strict=True)
    ]
    return torch.stack(means).sum()


def _overlaps(cells: Tensor, iou: Tensor, sizes: Sequence[int]) -> tuple[Tensor, ...]:
    """What objectness should be in every cell: the overlap of its positive; of several, the last one of the table.

    Sorting finds the last one in the same way on every device, where writing all of them would leave it to chance.

    Args:
        cells: the cell of each candidate, counted through all levels; the one after the last if it is no positive.
        iou: how much each overlaps.
        sizes: cells of the levels.
    """
    last = sum(sizes)
    place, order = cells.sort(stable=True)
    repeated = torch.zeros_like(place, dtype=torch.bool)
    repeated[:-1] = place[1:] == place[:-1]
    wanted = iou.new_zeros(last + 1)  # the last one takes what counts for no cell
    # Not torch.where, which brings its number to the GPU, and waits for that.
    wanted[place.masked_fill(repeated, last)] = iou[order]
    return torch.split(wanted[:last], list(sizes))


class _Pick(torch.autograd.Function):
    """The objectness of all cells of each level, and whole rows of a few, from levels as tables with a row a cell.

    Written out because autograd would make a zero-filled gradient of each whole level for each of the two and a third
    one for their sum, all of them while the activations are still alive. It makes one for all levels, which are summed
    up in one go.
    """

    @staticmethod
    def forward(ctx: Any, cells: Tensor, *levels: Tensor) -> tuple[Tensor, ...]:
        ctx.save_for_backward(cells)
        ctx.sizes = [len(level) for level in levels]
        own = cells.view(len(levels), -1)
        starts = itertools.accumulate(ctx.sizes, initial=0)
        rows = [level[place - start] for level, place, start in zip(levels, own, starts, strict=False)]
        return *(level[:, 4].clone() for level in levels), torch.cat(rows)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        *confidence, rows = grads
        whole = rows.new_zeros(sum(ctx.sizes), rows.shape[1])
        whole.index_put_(ctx.saved_tensors, rows, accumulate=True)
        whole[:, 4] += torch.cat(confidence)
        return None, *whole.split(ctx.sizes)


_pick: Any = _Pick.apply  # torch gives it no types


def split_batch(batch: Batch, pieces: int) -> list[Batch]:
    """Cut a batch (images, targets) into pieces whose sizes differ by at most one image, the larger ones first.

    The targets of a piece count its images from 0. This is the `split` that a guard needs, since targets have a row a
    box and not a row an image.

    Raises:
        UsageError: there are more pieces than images.
    """
    images, targets = batch
    if not 1 <= pieces <= len(images):
        raise UsageError(f"{len(images)} images can't make {pieces} pieces", "ask for fewer")
    size, rest = divmod(len(images), pieces)
    found = []
    begin = 0
    for piece in range(pieces):
        end = begin + size + (piece < rest)
        own = targets[(targets[:, 0] >= begin) & (targets[:, 0] < end)].clone()
        own[:, 0] -= begin
        found.append((images[begin:end], own))
        begin = end
    return found
