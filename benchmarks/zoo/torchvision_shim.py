"""Python versions of torchvision's operators, so that its models can be traced and run with a CPU build of torch.

For tests and benchmarks only. With a CUDA build, torchvision's compiled operators are used instead.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor

_LIBRARIES: list[torch.library.Library] = []
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
    """Declare the operators that torchvision's Python code uses, unless the compiled ones are available."""
    if _LIBRARIES or torch.version.cuda:
        return
    library = torch.library.Library("torchvision", "DEF")
    _LIBRARIES.append(library)  # keeps the definitions alive
    for schema in _SCHEMAS:
        library.define(schema)
    library.impl("nms", _nms, "CPU")
    library.impl("roi_align", _roi_align, "CPU")
    library.impl("roi_align", _roi_align_autocast, "AutocastCPU")
    library.impl("_roi_align_backward", _roi_align_backward, "CPU")
    torch.library.register_fake("torchvision::roi_align", _fake_roi_align, lib=library)
    torch.library.register_fake("torchvision::_roi_align_backward", _fake_roi_align_backward, lib=library)
    torch.library.register_autograd("torchvision::roi_align", _backward, setup_context=_setup_context, lib=library)


def import_detection() -> Any:
    """Return `torchvision.models.detection`, with the operators above and, on the CPU, the code paths of CUDA."""
    declare_operators()
    from torchvision.models import detection

    if _LIBRARIES:
        roi_align, boxes = sys.modules["torchvision.ops.roi_align"], sys.modules["torchvision.ops.boxes"]
        for module in (roi_align, boxes):
            vars(module)["_assert_has_ops"] = lambda: None
        vars(roi_align)["_has_ops"] = lambda: True
        # On the CPU, NMS runs class by class; on CUDA, boxes are shifted apart by class and processed at once.
        vars(boxes)["_batched_nms_vanilla"] = vars(boxes)["_batched_nms_coordinate_trick"]
    return detection


def _nms(dets: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """Return the indices of the boxes that greedy NMS keeps."""
    from torchvision.ops import box_iou

    remaining, kept = scores.argsort(descending=True), []
    while remaining.numel():
        best, remaining = remaining[0], remaining[1:]
        kept.append(best)
        remaining = remaining[box_iou(dets[best][None], dets[remaining])[0] <= iou_threshold]
    return torch.stack(kept) if kept else remaining


def _roi_align(features: Tensor, rois: Tensor, *options: Any) -> Tensor:
    """Run torchvision's Python formulation; two samples per bin where it would depend on the box."""
    scale, height, width, ratio, aligned = options
    align = vars(sys.modules["torchvision.ops.roi_align"])["_roi_align"].__wrapped__
    return align(features, rois, scale, height, width, ratio if ratio > 0 else 2, aligned)


def _roi_align_backward(grad: Tensor, rois: Tensor, *options: Any) -> Tensor:
    """Return the gradient, which does not depend on the features because the operation is linear in them."""
    scale, height, width, *shape, ratio, aligned = options
    with torch.enable_grad():
        features = grad.new_zeros(shape).requires_grad_()
        out = _roi_align(features, rois, scale, height, width, ratio, aligned)
        return torch.autograd.grad(out, features, grad)[0]


def _roi_align_autocast(features: Tensor, rois: Tensor, *options: Any) -> Tensor:
    """Run in fp32 and return the input's dtype, as on CUDA."""
    with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)):
        return torch.ops.torchvision.roi_align(features.float(), rois.float(), *options).to(features.dtype)


def _fake_roi_align(features: Tensor, rois: Tensor, _: float, height: int, width: int, *options: Any) -> Tensor:
    del options
    return features.new_empty((rois.shape[0], features.shape[1], height, width))


def _fake_roi_align_backward(grad: Tensor, rois: Tensor, *options: Any) -> Tensor:
    del rois
    return grad.new_empty(options[3:7])


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    del output
    features, rois, *ctx.options = inputs
    ctx.save_for_backward(rois)
    ctx.shape = features.shape


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    scale, height, width, *rest = ctx.options
    (rois,) = ctx.saved_tensors
    gradient = torch.ops.torchvision._roi_align_backward(grad, rois, scale, height, width, *ctx.shape, *rest)
    return gradient, *(None,) * (1 + len(ctx.options))
