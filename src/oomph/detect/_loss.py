"""The detection loss, and its exact split over pieces of a batch.

Box and class losses are means over positives, whose number depends on labels and grid alone. Counted for the whole
batch first (`normaliser`) and handed to each piece, the pieces' losses sum to that of the batch, and so do gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  torch's own name for it

from ..errors import WrongCall
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
            raise WrongCall(f"the model is a {type(network).__name__}", "give one that oomph.detect.yolov5 built")
        self._head, self._ratio, self._smoothing = network.head, ratio, smoothing
        self._copy: tuple[object, Tensor] | None = None
        self._known: dict[tuple[object, ...], Grids] = {}
        self.classes = network.classes
        self.gains = Gains(gains.box, gains.objectness * (size / _IMAGE) ** 2, gains.classes * self.classes / _CLASSES)

    def __call__(self, outputs: Any, targets: Tensor, normaliser: Positives | None = None) -> Tensor:
        """The loss to differentiate."""
        return self.parts(outputs, targets, normaliser).total

    def normaliser(self, batch: Batch) -> Positives:
        """Count the positives of a whole batch (images, targets), for its pieces to share."""
        return self._positives(batch, self._anchors(batch[1].device))

    def counter(self) -> Callable[[Batch], Positives]:
        """What counts as `normaliser` does, on the CPU and by the anchors of now, so that it never waits for a GPU."""
        anchors = self._head.anchors.detach().cpu().clone()
        return lambda batch: self._positives(batch, anchors)

    def _positives(self, batch: Batch, anchors: Tensor) -> Positives:
        images, targets = batch[0], batch[1].float()
        grids = self._grids(targets, grid_sizes(images))
        return Positives(count(targets, anchors, grids, self._ratio), len(images))

    def parts(self, outputs: Any, targets: Tensor, normaliser: Positives | None = None) -> LossParts:
        """The loss and what it is made of; `outputs` may be those of eval mode, decoded predictions first."""
        levels: Sequence[Tensor] = outputs if isinstance(outputs[1], Tensor) else outputs[1]
        targets = targets.to(levels[0].device, torch.float32)
        with torch.autocast(targets.device.type, enabled=False):
            anchors = self._anchors(targets.device).float()
            grids = self._grids(targets, [(level.shape[2], level.shape[3]) for level in levels])
            found = match(targets, anchors, grids, self._ratio)
            norm = normaliser or Positives(found.counts.sum(1), len(levels[0]))
            counts = norm.counts.to(targets.device, non_blocking=True)
            weight = found.counts / counts.clamp(min=1)[:, None]  # of each row in its mean
            confidence, rows = _pick_all(levels, found)
            iou = complete_iou(_boxes(rows, found.prior.flatten(0, 1)), found.box.flatten(0, 1))
            box = ((1 - iou) * weight.flatten()).sum() * self.gains.box
            wanted = _overlaps(found, iou.detach().clamp(min=0), grids, [level.shape for level in confidence])
            objectness = _objectness(confidence, wanted, norm.images) * self.gains.objectness
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


def _pick_all(levels: Sequence[Tensor], found: Candidates) -> tuple[list[Tensor], Tensor]:
    """The objectness of all cells of each level, and the rows of all candidates."""
    places = zip(found.image, found.anchor, found.row, found.column, strict=True)
    picked = [_pick(level, *place) for level, place in zip(levels, places, strict=True)]
    return [confidence for confidence, _ in picked], torch.cat([rows for _, rows in picked]).float()


def _objectness(confidence: Sequence[Tensor], wanted: Sequence[Tensor], images: int) -> Tensor:
    """How far cells are from the overlap of what they found: means over the cells of a level, weighed by level."""
    means = [
        F.binary_cross_entropy_with_logits(level.float(), want, reduction="sum")
        * (balance / (level[0].numel() * images))
        for level, want, balance in zip(confidence, wanted, _BALANCE, strict=True)
    ]
    return torch.stack(means).sum()


def _overlaps(found: Candidates, iou: Tensor, grids: Grids, shapes: Sequence[torch.Size]) -> list[Tensor]:
    """What objectness should be in every cell: the overlap of its positive; of several, the last one of the table.

    Sorting finds the last one in the same way on every device, where writing all of them would leave it to chance.
    """
    sizes = [shape.numel() for shape in shapes]
    cells = sum(sizes)
    images, anchors = shapes[0][:2]
    wide, high = grids.sides.long().unbind(-1)
    size = images * anchors * wide * high
    place = ((found.image * anchors + found.anchor) * high + found.row) * wide + found.column + size.cumsum(0) - size
    # Not torch.where, which brings its number to the GPU, and waits for that.
    place, order = place.masked_fill(~found.counts, cells).flatten().sort(stable=True)
    repeated = torch.zeros_like(place, dtype=torch.bool)
    repeated[:-1] = place[1:] == place[:-1]
    wanted = iou.new_zeros(cells + 1)  # the last one takes what counts for no cell
    wanted[place.masked_fill(repeated, cells)] = iou[order]
    return [one.view(shape) for one, shape in zip(wanted[:cells].split(sizes), shapes, strict=True)]


class _Pick(torch.autograd.Function):
    """The objectness of all cells, and whole rows of a few.

    Written out because autograd would make a zero-filled gradient of the whole level for each of the two and a third
    one for their sum, all of them while the activations are still alive.
    """

    @staticmethod
    def forward(ctx: Any, level: Tensor, *places: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(*places)
        ctx.like = (level.shape, level.dtype, level.stride())
        return level[..., 4].clone(), level[places]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        confidence, rows = grads
        shape, dtype, stride = ctx.like
        # Laid out as the level is, so that the way back into the convolution needs no copy either.
        grad = torch.empty_strided(shape, stride, dtype=dtype, device=rows.device).zero_()
        grad.index_put_(ctx.saved_tensors, rows, accumulate=True)
        grad[..., 4] += confidence
        return grad, None, None, None, None


_pick: Any = _Pick.apply  # torch gives it no types


def split_batch(batch: Batch, pieces: int) -> list[Batch]:
    """Cut a batch (images, targets) into pieces whose sizes differ by at most one image, the larger ones first.

    The targets of a piece count its images from 0. This is the `split` that a guard needs, since targets have a row a
    box and not a row an image.

    Raises:
        WrongCall: there are more pieces than images.
    """
    images, targets = batch
    if not 1 <= pieces <= len(images):
        raise WrongCall(f"{len(images)} images can't make {pieces} pieces", "ask for fewer")
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
