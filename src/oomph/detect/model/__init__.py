"""The YOLOv5 network, its loss and its post-processing."""

from ._anchors import AnchorCheck, check_anchors
from ._architectures import ARCHITECTURES, Architecture, find_architecture
from ._batch import DetectionBatch, downscale_batch
from ._boxes import box_iou, cxcywh_to_xyxy, xyxy_to_cxcywh
from ._distillation import DISTILL_LOSSES, DistilledDetector, DistillLoss, StudentOutputs, student_of
from ._head import decode_level, raw_level
from ._loss import DetectionLoss, LossGains, LossParts, Positives
from ._network import ANCHORS, MAX_STRIDE, STRIDES, Anchors, HeadOutputs, Yolov5, round_to_stride, scaled_widths, yolov5
from ._nms import VAL_NMS, NmsConfig, nms, nms_indices

__all__ = [
    "ANCHORS",
    "ARCHITECTURES",
    "DISTILL_LOSSES",
    "MAX_STRIDE",
    "STRIDES",
    "VAL_NMS",
    "AnchorCheck",
    "Anchors",
    "Architecture",
    "DetectionBatch",
    "DetectionLoss",
    "DistillLoss",
    "DistilledDetector",
    "HeadOutputs",
    "LossGains",
    "LossParts",
    "NmsConfig",
    "Positives",
    "StudentOutputs",
    "Yolov5",
    "box_iou",
    "check_anchors",
    "cxcywh_to_xyxy",
    "decode_level",
    "downscale_batch",
    "find_architecture",
    "nms",
    "nms_indices",
    "raw_level",
    "round_to_stride",
    "scaled_widths",
    "student_of",
    "xyxy_to_cxcywh",
    "yolov5",
]
