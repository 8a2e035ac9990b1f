"""YOLOv5 detectors: network, loss, boxes, data sets, augmentation, metrics and the training recipe."""

from ._anchors import AnchorCheck, box_sizes, check_anchors
from ._augment import Augmentation, Source, choose, collate, compose, plain_sample, sample
from ._boxes import iou_pairs, to_centres, to_corners, unletterbox
from ._checkpoint import Weights, load_weights, read_plain, read_weights, save_weights, write_atomically
from ._dataset import DataSet, Split, label_path, read_dataset, read_split, shared_images
from ._ema import Ema
from ._embedded import EmbeddedRun, EmbeddedSize, draw_scene, write_embedded
from ._job import detection_job
from ._labels import LabelTable
from ._letterbox import Fit, Frame, frames, letterbox
from ._loss import DetectionLoss, Gains, LossParts, Positives, split_batch
from ._material import Material, prepare
from ._metrics import ClassScore, ImageResult, Scores, has_metrics, score
from ._network import ANCHORS, SIZES, STRIDES, Yolov5, yolov5
from ._order_form import OrderForm
from ._pictures import DrawnBox, draw_boxes, found_boxes, labelled_boxes, sheet
from ._plots import Chart, Line, curves, draw_chart, precision_recall
from ._recipe import Recipe, build_optimizer, freeze, parameter_groups, read_recipe, recipe_from
from ._results import image_result, read_results, write_results
from ._schedule import Moment, Schedule, accumulation, set_rates, should_stop
from ._set_aside import SetAside
from ._suppression import VALIDATION, Suppression, suppress
from ._teller import Outcome, Teller
from ._training import train
from ._use import FoundInImage, FoundObjects, evaluate_weights, find_objects
from ._validation import plainly, validate, validation_loader

__all__ = [
    "ANCHORS",
    "SIZES",
    "STRIDES",
    "VALIDATION",
    "AnchorCheck",
    "Augmentation",
    "Chart",
    "ClassScore",
    "DataSet",
    "DetectionLoss",
    "DrawnBox",
    "Ema",
    "EmbeddedRun",
    "EmbeddedSize",
    "Fit",
    "FoundInImage",
    "FoundObjects",
    "Frame",
    "Gains",
    "ImageResult",
    "LabelTable",
    "Line",
    "LossParts",
    "Material",
    "Moment",
    "OrderForm",
    "Outcome",
    "Positives",
    "Recipe",
    "Schedule",
    "Scores",
    "SetAside",
    "Source",
    "Split",
    "Suppression",
    "Teller",
    "Weights",
    "Yolov5",
    "accumulation",
    "box_sizes",
    "build_optimizer",
    "check_anchors",
    "choose",
    "collate",
    "compose",
    "curves",
    "detection_job",
    "draw_boxes",
    "draw_chart",
    "draw_scene",
    "evaluate_weights",
    "find_objects",
    "found_boxes",
    "frames",
    "freeze",
    "has_metrics",
    "image_result",
    "iou_pairs",
    "label_path",
    "labelled_boxes",
    "letterbox",
    "load_weights",
    "parameter_groups",
    "plain_sample",
    "plainly",
    "precision_recall",
    "prepare",
    "read_dataset",
    "read_plain",
    "read_recipe",
    "read_results",
    "read_split",
    "read_weights",
    "recipe_from",
    "sample",
    "save_weights",
    "score",
    "set_rates",
    "shared_images",
    "sheet",
    "should_stop",
    "split_batch",
    "suppress",
    "to_centres",
    "to_corners",
    "train",
    "unletterbox",
    "validate",
    "validation_loader",
    "write_atomically",
    "write_embedded",
    "write_results",
    "yolov5",
]
