"""Distillation of a detector: a student that learns from a teacher's outputs and features beside the labels.

Each image has its own distillation loss, which depends on no other image, so that the losses of micro-batches sum to
that of the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  torch's convention

from ...errors import UsageError, quote
from ._boxes import complete_iou
from ._loss import OBJ_BALANCE, LossGains, decode_boxes
from ._network import Yolov5

DISTILL_LOSSES = ("response", "feature", "both")
_MAX_CELLS = 1024  # of each level and image that boxes and classes are compared in; the others weigh next to nothing
_FEATURE_GAIN = 0.1  # puts the loss of features on the scale of the detection loss
_TEACHER = "teacher."


class StudentOutputs(NamedTuple):
    """Outputs in training mode.

    Attributes:
        levels: raw levels of the student.
        losses: distillation loss of each image, (n,).
    """

    levels: list[Tensor]
    losses: Tensor


class DistillLoss:
    """The distillation loss of each image.

    "response" compares raw outputs (Mehta and Ozturk, 2018): objectness with that of the teacher; boxes and classes as
    means over cells, weighted by the teacher's objectness, so that background teaches neither. "feature" compares
    where the features of the three levels are strong (Zagoruyko and Komodakis, 2017), which any two networks allow.

    Args:
        kind: "response", "feature" or "both".
        gains: those of the detection loss, scaled to image size and classes.
        gain: weight of the result.
    """

    def __init__(self, kind: str, gains: LossGains, gain: float = 1.0) -> None:
        if kind not in DISTILL_LOSSES:
            raise UsageError(f"distill is {quote(kind)}", f"choose one of {', '.join(DISTILL_LOSSES)}")
        self.kind, self.gains, self.gain = kind, gains, gain

    def __call__(self, student: DetectorState, teacher: DetectorState, anchors: Tensor) -> Tensor:
        """Return the losses (n,) of a batch; anchors (levels, anchors, 2) are in cells and those of both networks."""
        losses = student.levels[0].new_zeros(len(student.levels[0]), dtype=_loss_dtype(student.levels[0]))
        with torch.autocast(losses.device.type, enabled=False):
            if self.kind != "feature":
                losses = losses + response_losses(student.levels, teacher.levels, anchors, self.gains)
            if self.kind != "response":
                losses = losses + _FEATURE_GAIN * feature_losses(student.attention, teacher.attention)
            return losses * self.gain


class DetectorState(NamedTuple):
    """Outputs of one of the detectors.

    Attributes:
        levels: raw levels (n, anchors, h, w, 5 + classes).
        attention: maps (n, h * w) of the head's inputs; empty if they aren't compared.
    """

    levels: list[Tensor]
    attention: Sequence[Tensor]


class DistilledDetector(nn.Module):
    """A student and its teacher. In eval mode it is the student alone.

    The teacher is always in eval mode and never has gradients. It runs first, so that its temporary memory is free
    again when the student's activations are stored. Its weights are no part of the state dict.

    Args:
        student: the detector to train.
        teacher: another one with the same classes and anchors; it is frozen.
        loss: compares them.
    """

    def __init__(self, student: Yolov5, teacher: Yolov5, loss: DistillLoss) -> None:
        super().__init__()
        self.student, self.teacher, self.loss = student, teacher, loss
        self.teacher.requires_grad_(requires_grad=False).eval()
        self.register_state_dict_post_hook(_remove_teacher)  # type: ignore[no-untyped-call]
        self.register_load_state_dict_post_hook(_expect_no_teacher)  # type: ignore[no-untyped-call]

    def train(self, mode: bool = True) -> DistilledDetector:  # noqa: FBT001, FBT002  torch's signature
        """Set the mode of the student."""
        super().train(mode)
        self.teacher.eval()
        return self

    def forward(self, images: Tensor) -> Any:
        """Return the student's outputs in eval mode, StudentOutputs in training mode."""
        if not self.training:
            return self.student(images)
        with torch.no_grad():
            teacher = self._run(self.teacher, images)
        student = self._run(self.student, images)
        return StudentOutputs(student.levels, self.loss(student, teacher, self.student.head.anchors))

    def _run(self, detector: Yolov5, images: Tensor) -> DetectorState:
        features = detector.features(images)
        # Maps are small: the features of the teacher are freed here.
        attention = [] if self.loss.kind == "response" else [attention_map(feature) for feature in features]
        return DetectorState(detector.head.raw_levels(features), attention)


def student_of(model: nn.Module) -> nn.Module:
    """Return the network to train, without DistributedDataParallel and without its teacher."""
    inner = getattr(model, "module", None)
    network = inner if isinstance(inner, nn.Module) else model
    return network.student if isinstance(network, DistilledDetector) else network


def response_losses(student: Sequence[Tensor], teacher: Sequence[Tensor], anchors: Tensor, gains: LossGains) -> Tensor:
    """Return the loss of raw levels against the teacher's, of each image (n,); 0 where they are equal."""
    parts = []
    for ours, theirs, priors, balance in zip(student, teacher, anchors, OBJ_BALANCE, strict=True):
        # In the memory order of channels_last outputs, in which this is a view.
        ours_rows, theirs_rows = (level.permute(0, 2, 3, 1, 4).flatten(1, 3) for level in (ours, theirs))
        dtype = _loss_dtype(ours)
        objectness = theirs_rows[..., 4].to(dtype)
        parts.append(_divergence(ours_rows[..., 4].to(dtype), objectness).mean(1) * (balance * gains.obj))
        top, cells = objectness.topk(min(_MAX_CELLS, objectness.shape[1]), sorted=False)
        index = cells[..., None].expand(-1, -1, ours_rows.shape[-1])
        prior = priors.to(dtype)[cells % len(priors)]
        rows = _cell_losses(ours_rows.gather(1, index).to(dtype), theirs_rows.gather(1, index).to(dtype), prior, gains)
        weight = top.sigmoid()
        parts.append((rows * weight).sum(1) / weight.sum(1).clamp(min=1))
    return torch.stack(parts).sum(0)


def _cell_losses(student: Tensor, teacher: Tensor, prior: Tensor, gains: LossGains) -> Tensor:
    """Return the loss of boxes and classes in each cell, (n, cells)."""
    box = (1 - complete_iou(decode_boxes(student, prior), decode_boxes(teacher, prior))) * gains.box
    classes = student.shape[-1] - 5
    if classes == 1:  # which the detection loss doesn't train
        return box
    return box + _divergence(student[..., 5:], teacher[..., 5:]).mean(-1) * gains.cls


def _divergence(student: Tensor, teacher: Tensor) -> Tensor:
    """Return the cross entropy of logits against the teacher's probabilities, less the teacher's entropy."""
    target = teacher.sigmoid()
    cross_entropy = F.binary_cross_entropy_with_logits(student, target, reduction="none")
    return cross_entropy - F.binary_cross_entropy_with_logits(teacher, target, reduction="none")


def feature_losses(student: Sequence[Tensor], teacher: Sequence[Tensor]) -> Tensor:
    """Return the squared distance between attention maps, summed over levels, of each image (n,)."""
    distances = [(ours - theirs).square().sum(1) for ours, theirs in zip(student, teacher, strict=True)]
    return torch.stack(distances).sum(0)


def attention_map(feature: Tensor) -> Tensor:
    """Return the strength of a feature (n, channels, h, w) in each cell, as a unit vector (n, h * w)."""
    return F.normalize(feature.to(_loss_dtype(feature)).square().mean(1).flatten(1), dim=1)


def _loss_dtype(tensor: Tensor) -> torch.dtype:
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32


def _remove_teacher(module: nn.Module, state: dict[str, Any], prefix: str, metadata: object) -> None:
    del module, metadata
    for name in [name for name in state if name.startswith(f"{prefix}{_TEACHER}")]:
        del state[name]


def _expect_no_teacher(module: nn.Module, incompatible: Any) -> None:
    assert isinstance(module, DistilledDetector)  # noqa: S101  for the type checker
    teacher = {f"{_TEACHER}{name}" for name in module.teacher.state_dict()}
    incompatible.missing_keys[:] = [name for name in incompatible.missing_keys if name not in teacher]
