"""Lets torchvision's models be built, traced and run beside a torch without its operators.

For tests and benchmarks only. Where torchvision's own operators load, nothing here happens.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor

_HELD: list[torch.library.Library] = []
_SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    (
        "roi_align(Tensor input, Tensor rois, float spatial_scale, int pooled_height, int pooled_width, "
        "int sampling_ratio, bool aligned) -> Tensor"
    ),
    (
        "_roi_align_backward(Tensor grad, Tensor rois, float spatial_scale, int pooled_height, int pooled_width, "
        "int batch_size, int channels, int height, int width, int sampling_ratio, bool aligned) -> Tensor"
    ),
)


def declare_operators() -> None:
    """Declare the operators that torchvision's Python code looks for, unless its own will load."""
    if _HELD or torch.version.cuda:
        return
    library = torch.library.Library("torchvision", "DEF")
    _HELD.append(library)  # definitions live as long as this does
    for schema in _SCHEMAS:
        library.define(schema)
    library.impl("nms", _nms, "CPU")
    library.impl("roi_align", _roi_align, "CPU")
    library.impl("roi_align", _roi_align_autocast, "AutocastCPU")
    library.impl("_roi_align_backward", _roi_align_backward, "CPU")
    torch.library.register_fake("torchvision::roi_align", _fake_roi_align, lib=library)
    torch.library.register_fake("torchvision::_roi_align_backward", _fake_roi_align_backward, lib=library)
    torch.library.register_autograd("torchvision::roi_align", _differentiate, setup_context=_remember, lib=library)


def open_detection() -> Any:
    """`torchvision.models.detection`, taking the operators above, and on the CPU the paths that CUDA takes."""
    declare_operators()
    from torchvision.models import detection

    if _HELD:
        aligning, boxes = sys.modules["torchvision.ops.roi_align"], sys.modules["torchvision.ops.boxes"]
        for module in (aligning, boxes):
            vars(module)["_assert_has_ops"] = lambda: None
        vars(aligning)["_has_ops"] = lambda: True
        # On the CPU many boxes are gone through class by class; on CUDA they are shifted apart and taken at once.
        vars(boxes)["_batched_nms_vanilla"] = vars(boxes)["_batched_nms_coordinate_trick"]
    return detection


def _nms(dets: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """The best box, then the best of those that overlap it too little, and so on."""
    from torchvision.ops import box_iou

    waiting, kept = scores.argsort(descending=True), []
    while waiting.numel():
        best, waiting = waiting[0], waiting[1:]
        kept.append(best)
        waiting = waiting[box_iou(dets[best][None], dets[waiting])[0] <= iou_threshold]
    return torch.stack(kept) if kept else waiting


def _roi_align(features: Tensor, rois: Tensor, *how: Any) -> Tensor:
    """Torchvision's own formulation in Python, not compiled; two samples a bin where it would look at the box."""
    scale, high, wide, ratio, aligned = how
    align = vars(sys.modules["torchvision.ops.roi_align"])["_roi_align"].__wrapped__
    return align(features, rois, scale, high, wide, ratio if ratio > 0 else 2, aligned)


def _roi_align_backward(grad: Tensor, rois: Tensor, *how: Any) -> Tensor:
    """The operation is linear in the features: its derivative is the same anywhere."""
    scale, high, wide, *shape, ratio, aligned = how
    with torch.enable_grad():
        features = grad.new_zeros(shape).requires_grad_()
        out = _roi_align(features, rois, scale, high, wide, ratio, aligned)
        return torch.autograd.grad(out, features, grad)[0]


def _roi_align_autocast(features: Tensor, rois: Tensor, *how: Any) -> Tensor:
    """CUDA's runs in fp32 and gives back what it got."""
    with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)):
        return torch.ops.torchvision.roi_align(features.float(), rois.float(), *how).to(features.dtype)


def _fake_roi_align(features: Tensor, rois: Tensor, _: float, high: int, wide: int, *how: Any) -> Tensor:
    del how
    return features.new_empty((rois.shape[0], features.shape[1], high, wide))


def _fake_roi_align_backward(grad: Tensor, rois: Tensor, *how: Any) -> Tensor:
    del rois
    return grad.new_empty(how[3:7])


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    del output
    features, rois, *ctx.how = inputs
    ctx.save_for_backward(rois)
    ctx.shape = features.shape


def _differentiate(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    scale, high, wide, *rest = ctx.how
    (rois,) = ctx.saved_tensors
    found = torch.ops.torchvision._roi_align_backward(grad, rois, scale, high, wide, *ctx.shape, *rest)
    return found, *(None,) * (1 + len(ctx.how))
