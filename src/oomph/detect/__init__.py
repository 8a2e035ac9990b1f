"""YOLOv5 detectors: network, loss, boxes, data sets, augmentation, metrics and the training recipe."""

from ._loss import DetectionLoss, Gains, LossParts, Positives, split_batch
from ._network import Yolov5, yolov5

__all__ = ["DetectionLoss", "Gains", "LossParts", "Positives", "Yolov5", "split_batch", "yolov5"]
