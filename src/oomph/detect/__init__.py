"""YOLOv5 detectors: network, loss, boxes, data sets, augmentation, metrics and the training recipe."""

from ._augment import Augmentation, Source, collate, plain_sample, sample
from ._checkpoint import Weights, load_weights, read_plain, read_weights, save_weights, write_atomically
from ._ema import Ema
from ._embedded import EmbeddedSize, write_embedded
from ._letterbox import Fit, Frame, frames, letterbox
from ._loss import DetectionLoss, Gains, LossParts, Positives, split_batch
from ._metrics import ClassScore, ImageResult, Scores, has_metrics, score
from ._network import Yolov5, yolov5
from ._recipe import Recipe, build_optimizer, parameter_groups, read_recipe, recipe_from
from ._schedule import Moment, Schedule, accumulation
from ._suppression import VALIDATION, Suppression, suppress

__all__ = [
    "VALIDATION",
    "Augmentation",
    "ClassScore",
    "DetectionLoss",
    "Ema",
    "EmbeddedSize",
    "Fit",
    "Frame",
    "Gains",
    "ImageResult",
    "LossParts",
    "Moment",
    "Positives",
    "Recipe",
    "Schedule",
    "Scores",
    "Source",
    "Suppression",
    "Weights",
    "Yolov5",
    "accumulation",
    "build_optimizer",
    "collate",
    "frames",
    "has_metrics",
    "letterbox",
    "load_weights",
    "parameter_groups",
    "plain_sample",
    "read_plain",
    "read_recipe",
    "read_weights",
    "recipe_from",
    "sample",
    "save_weights",
    "score",
    "split_batch",
    "suppress",
    "write_atomically",
    "write_embedded",
    "yolov5",
]
