"""YOLOv5 detectors: network, loss, boxes, data sets, augmentation, metrics and the training recipe.

Names are loaded on first use: processes that only make samples never import torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .checkpoint._weights import Weights as Weights
    from .checkpoint._weights import load_weights as load_weights
    from .checkpoint._weights import read_plain as read_plain
    from .checkpoint._weights import read_weights as read_weights
    from .checkpoint._weights import save_weights as save_weights
    from .dataset._augmentation import Augmentation as Augmentation
    from .dataset._augmentation import Source as Source
    from .dataset._augmentation import choose as choose
    from .dataset._augmentation import compose as compose
    from .dataset._augmentation import sample as sample
    from .dataset._data_yaml import DataSet as DataSet
    from .dataset._data_yaml import Split as Split
    from .dataset._data_yaml import as_one_class as as_one_class
    from .dataset._data_yaml import label_path as label_path
    from .dataset._data_yaml import read_dataset as read_dataset
    from .dataset._data_yaml import read_split as read_split
    from .dataset._data_yaml import shared_images as shared_images
    from .dataset._demo import EmbeddedRun as EmbeddedRun
    from .dataset._demo import EmbeddedSize as EmbeddedSize
    from .dataset._demo import draw_scene as draw_scene
    from .dataset._demo import write_embedded as write_embedded
    from .dataset._indexed_split import Material as Material
    from .dataset._indexed_split import prepare as prepare
    from .dataset._issues import SetAside as SetAside
    from .dataset._labels import LabelTable as LabelTable
    from .dataset._rect_sampler import Frame as Frame
    from .dataset._rect_sampler import frames as frames
    from .inference._detect import FoundInImage as FoundInImage
    from .inference._detect import FoundObjects as FoundObjects
    from .inference._detect import evaluate_weights as evaluate_weights
    from .inference._detect import find_objects as find_objects
    from .inference._validation import plainly as plainly
    from .inference._validation import validate as validate
    from .inference._validation import validation_loader as validation_loader
    from .metrics._image_result import image_result as image_result
    from .metrics._image_result import read_results as read_results
    from .metrics._image_result import write_results as write_results
    from .metrics._scores import ClassScore as ClassScore
    from .metrics._scores import ImageResult as ImageResult
    from .metrics._scores import Scores as Scores
    from .metrics._scores import has_metrics as has_metrics
    from .metrics._scores import score as score
    from .model._anchors import AnchorCheck as AnchorCheck
    from .model._anchors import box_sizes as box_sizes
    from .model._anchors import check_anchors as check_anchors
    from .model._boxes import iou_pairs as iou_pairs
    from .model._boxes import to_centres as to_centres
    from .model._boxes import to_corners as to_corners
    from .model._loss import DetectionLoss as DetectionLoss
    from .model._loss import Gains as Gains
    from .model._loss import LossParts as LossParts
    from .model._loss import Positives as Positives
    from .model._loss import split_batch as split_batch
    from .model._network import ANCHORS as ANCHORS
    from .model._network import SIZES as SIZES
    from .model._network import STRIDES as STRIDES
    from .model._network import Yolov5 as Yolov5
    from .model._network import yolov5 as yolov5
    from .model._nms import VALIDATION as VALIDATION
    from .model._nms import Suppression as Suppression
    from .model._nms import suppress as suppress
    from .plots._charts import Chart as Chart
    from .plots._charts import Line as Line
    from .plots._charts import curves as curves
    from .plots._charts import draw_chart as draw_chart
    from .plots._charts import precision_recall as precision_recall
    from .plots._drawing import DrawnBox as DrawnBox
    from .plots._drawing import draw_boxes as draw_boxes
    from .plots._drawing import found_boxes as found_boxes
    from .plots._drawing import labelled_boxes as labelled_boxes
    from .plots._drawing import sheet as sheet
    from .training._config import OrderForm as OrderForm
    from .training._dist import Ranks as Ranks
    from .training._dist import join_ranks as join_ranks
    from .training._ema import Ema as Ema
    from .training._hyperparameters import Recipe as Recipe
    from .training._hyperparameters import build_optimizer as build_optimizer
    from .training._hyperparameters import freeze as freeze
    from .training._hyperparameters import parameter_groups as parameter_groups
    from .training._hyperparameters import read_recipe as read_recipe
    from .training._hyperparameters import recipe_from as recipe_from
    from .training._job import detection_job as detection_job
    from .training._progress import Outcome as Outcome
    from .training._progress import Teller as Teller
    from .training._saved_config import Order as Order
    from .training._saved_config import read_order as read_order
    from .training._schedule import Moment as Moment
    from .training._schedule import Schedule as Schedule
    from .training._schedule import accumulation as accumulation
    from .training._schedule import set_rates as set_rates
    from .training._schedule import should_stop as should_stop
    from .training._settings_file import FLAGS as FLAGS
    from .training._settings_file import changed_settings as changed_settings
    from .training._settings_file import read_settings as read_settings
    from .training._settings_file import settings_text as settings_text
    from .training._train import train as train

_HOME = {
    "ANCHORS": "model._network",
    "FLAGS": "training._settings_file",
    "SIZES": "model._network",
    "STRIDES": "model._network",
    "VALIDATION": "model._nms",
    "AnchorCheck": "model._anchors",
    "Augmentation": "dataset._augmentation",
    "Chart": "plots._charts",
    "ClassScore": "metrics._scores",
    "DataSet": "dataset._data_yaml",
    "DetectionLoss": "model._loss",
    "DrawnBox": "plots._drawing",
    "Ema": "training._ema",
    "EmbeddedRun": "dataset._demo",
    "EmbeddedSize": "dataset._demo",
    "FoundInImage": "inference._detect",
    "FoundObjects": "inference._detect",
    "Frame": "dataset._rect_sampler",
    "Gains": "model._loss",
    "ImageResult": "metrics._scores",
    "LabelTable": "dataset._labels",
    "Line": "plots._charts",
    "LossParts": "model._loss",
    "Material": "dataset._indexed_split",
    "Moment": "training._schedule",
    "Order": "training._saved_config",
    "OrderForm": "training._config",
    "Outcome": "training._progress",
    "Positives": "model._loss",
    "Ranks": "training._dist",
    "Recipe": "training._hyperparameters",
    "Schedule": "training._schedule",
    "Scores": "metrics._scores",
    "SetAside": "dataset._issues",
    "Source": "dataset._augmentation",
    "Split": "dataset._data_yaml",
    "Suppression": "model._nms",
    "Teller": "training._progress",
    "Weights": "checkpoint._weights",
    "Yolov5": "model._network",
    "accumulation": "training._schedule",
    "as_one_class": "dataset._data_yaml",
    "box_sizes": "model._anchors",
    "build_optimizer": "training._hyperparameters",
    "changed_settings": "training._settings_file",
    "check_anchors": "model._anchors",
    "choose": "dataset._augmentation",
    "compose": "dataset._augmentation",
    "curves": "plots._charts",
    "detection_job": "training._job",
    "draw_boxes": "plots._drawing",
    "draw_chart": "plots._charts",
    "draw_scene": "dataset._demo",
    "evaluate_weights": "inference._detect",
    "find_objects": "inference._detect",
    "found_boxes": "plots._drawing",
    "frames": "dataset._rect_sampler",
    "freeze": "training._hyperparameters",
    "has_metrics": "metrics._scores",
    "image_result": "metrics._image_result",
    "iou_pairs": "model._boxes",
    "join_ranks": "training._dist",
    "label_path": "dataset._data_yaml",
    "labelled_boxes": "plots._drawing",
    "load_weights": "checkpoint._weights",
    "parameter_groups": "training._hyperparameters",
    "plainly": "inference._validation",
    "precision_recall": "plots._charts",
    "prepare": "dataset._indexed_split",
    "read_dataset": "dataset._data_yaml",
    "read_order": "training._saved_config",
    "read_plain": "checkpoint._weights",
    "read_recipe": "training._hyperparameters",
    "read_results": "metrics._image_result",
    "read_settings": "training._settings_file",
    "read_split": "dataset._data_yaml",
    "read_weights": "checkpoint._weights",
    "recipe_from": "training._hyperparameters",
    "sample": "dataset._augmentation",
    "save_weights": "checkpoint._weights",
    "score": "metrics._scores",
    "set_rates": "training._schedule",
    "settings_text": "training._settings_file",
    "shared_images": "dataset._data_yaml",
    "sheet": "plots._drawing",
    "should_stop": "training._schedule",
    "split_batch": "model._loss",
    "suppress": "model._nms",
    "to_centres": "model._boxes",
    "to_corners": "model._boxes",
    "train": "training._train",
    "validate": "inference._validation",
    "validation_loader": "inference._validation",
    "write_embedded": "dataset._demo",
    "write_results": "metrics._image_result",
    "yolov5": "model._network",
}

__all__ = [
    "ANCHORS",
    "FLAGS",
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
    "Order",
    "OrderForm",
    "Outcome",
    "Positives",
    "Ranks",
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
    "as_one_class",
    "box_sizes",
    "build_optimizer",
    "changed_settings",
    "check_anchors",
    "choose",
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
    "join_ranks",
    "label_path",
    "labelled_boxes",
    "load_weights",
    "parameter_groups",
    "plainly",
    "precision_recall",
    "prepare",
    "read_dataset",
    "read_order",
    "read_plain",
    "read_recipe",
    "read_results",
    "read_settings",
    "read_split",
    "read_weights",
    "recipe_from",
    "sample",
    "save_weights",
    "score",
    "set_rates",
    "settings_text",
    "shared_images",
    "sheet",
    "should_stop",
    "split_batch",
    "suppress",
    "to_centres",
    "to_corners",
    "train",
    "validate",
    "validation_loader",
    "write_embedded",
    "write_results",
    "yolov5",
]


def __getattr__(name: str) -> object:
    """Load a public name on first use."""
    if name not in _HOME:
        raise AttributeError(f"module 'oomph.detect' has no attribute {name!r}")
    import importlib  # noqa: PLC0415  only with the first use

    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
