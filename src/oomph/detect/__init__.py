"""YOLOv5 detectors: network, loss, boxes, data sets, augmentation, metrics and the training recipe.

Names are loaded on first use: processes that only make samples never import torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._anchors import AnchorCheck as AnchorCheck
    from ._anchors import box_sizes as box_sizes
    from ._anchors import check_anchors as check_anchors
    from ._augment import Augmentation as Augmentation
    from ._augment import Source as Source
    from ._augment import choose as choose
    from ._augment import compose as compose
    from ._augment import sample as sample
    from ._boxes import iou_pairs as iou_pairs
    from ._boxes import to_centres as to_centres
    from ._boxes import to_corners as to_corners
    from ._checkpoint import Weights as Weights
    from ._checkpoint import load_weights as load_weights
    from ._checkpoint import read_plain as read_plain
    from ._checkpoint import read_weights as read_weights
    from ._checkpoint import save_weights as save_weights
    from ._dataset import DataSet as DataSet
    from ._dataset import Split as Split
    from ._dataset import as_one_class as as_one_class
    from ._dataset import label_path as label_path
    from ._dataset import read_dataset as read_dataset
    from ._dataset import read_split as read_split
    from ._dataset import shared_images as shared_images
    from ._ema import Ema as Ema
    from ._embedded import EmbeddedRun as EmbeddedRun
    from ._embedded import EmbeddedSize as EmbeddedSize
    from ._embedded import draw_scene as draw_scene
    from ._embedded import write_embedded as write_embedded
    from ._frames import Frame as Frame
    from ._frames import frames as frames
    from ._job import detection_job as detection_job
    from ._labels import LabelTable as LabelTable
    from ._loss import DetectionLoss as DetectionLoss
    from ._loss import Gains as Gains
    from ._loss import LossParts as LossParts
    from ._loss import Positives as Positives
    from ._loss import split_batch as split_batch
    from ._material import Material as Material
    from ._material import prepare as prepare
    from ._metrics import ClassScore as ClassScore
    from ._metrics import ImageResult as ImageResult
    from ._metrics import Scores as Scores
    from ._metrics import has_metrics as has_metrics
    from ._metrics import score as score
    from ._network import ANCHORS as ANCHORS
    from ._network import SIZES as SIZES
    from ._network import STRIDES as STRIDES
    from ._network import Yolov5 as Yolov5
    from ._network import yolov5 as yolov5
    from ._order_file import Order as Order
    from ._order_file import read_order as read_order
    from ._order_form import OrderForm as OrderForm
    from ._pictures import DrawnBox as DrawnBox
    from ._pictures import draw_boxes as draw_boxes
    from ._pictures import found_boxes as found_boxes
    from ._pictures import labelled_boxes as labelled_boxes
    from ._pictures import sheet as sheet
    from ._plots import Chart as Chart
    from ._plots import Line as Line
    from ._plots import curves as curves
    from ._plots import draw_chart as draw_chart
    from ._plots import precision_recall as precision_recall
    from ._ranks import Ranks as Ranks
    from ._ranks import join_ranks as join_ranks
    from ._recipe import Recipe as Recipe
    from ._recipe import build_optimizer as build_optimizer
    from ._recipe import freeze as freeze
    from ._recipe import parameter_groups as parameter_groups
    from ._recipe import read_recipe as read_recipe
    from ._recipe import recipe_from as recipe_from
    from ._results import image_result as image_result
    from ._results import read_results as read_results
    from ._results import write_results as write_results
    from ._schedule import Moment as Moment
    from ._schedule import Schedule as Schedule
    from ._schedule import accumulation as accumulation
    from ._schedule import set_rates as set_rates
    from ._schedule import should_stop as should_stop
    from ._set_aside import SetAside as SetAside
    from ._settings_file import FLAGS as FLAGS
    from ._settings_file import changed_settings as changed_settings
    from ._settings_file import read_settings as read_settings
    from ._settings_file import settings_text as settings_text
    from ._suppression import VALIDATION as VALIDATION
    from ._suppression import Suppression as Suppression
    from ._suppression import suppress as suppress
    from ._teller import Outcome as Outcome
    from ._teller import Teller as Teller
    from ._training import train as train
    from ._use import FoundInImage as FoundInImage
    from ._use import FoundObjects as FoundObjects
    from ._use import evaluate_weights as evaluate_weights
    from ._use import find_objects as find_objects
    from ._validation import plainly as plainly
    from ._validation import validate as validate
    from ._validation import validation_loader as validation_loader

_HOME = {
    "ANCHORS": "_network",
    "FLAGS": "_settings_file",
    "SIZES": "_network",
    "STRIDES": "_network",
    "VALIDATION": "_suppression",
    "AnchorCheck": "_anchors",
    "Augmentation": "_augment",
    "Chart": "_plots",
    "ClassScore": "_metrics",
    "DataSet": "_dataset",
    "DetectionLoss": "_loss",
    "DrawnBox": "_pictures",
    "Ema": "_ema",
    "EmbeddedRun": "_embedded",
    "EmbeddedSize": "_embedded",
    "FoundInImage": "_use",
    "FoundObjects": "_use",
    "Frame": "_frames",
    "Gains": "_loss",
    "ImageResult": "_metrics",
    "LabelTable": "_labels",
    "Line": "_plots",
    "LossParts": "_loss",
    "Material": "_material",
    "Moment": "_schedule",
    "Order": "_order_file",
    "OrderForm": "_order_form",
    "Outcome": "_teller",
    "Positives": "_loss",
    "Ranks": "_ranks",
    "Recipe": "_recipe",
    "Schedule": "_schedule",
    "Scores": "_metrics",
    "SetAside": "_set_aside",
    "Source": "_augment",
    "Split": "_dataset",
    "Suppression": "_suppression",
    "Teller": "_teller",
    "Weights": "_checkpoint",
    "Yolov5": "_network",
    "accumulation": "_schedule",
    "as_one_class": "_dataset",
    "box_sizes": "_anchors",
    "build_optimizer": "_recipe",
    "changed_settings": "_settings_file",
    "check_anchors": "_anchors",
    "choose": "_augment",
    "compose": "_augment",
    "curves": "_plots",
    "detection_job": "_job",
    "draw_boxes": "_pictures",
    "draw_chart": "_plots",
    "draw_scene": "_embedded",
    "evaluate_weights": "_use",
    "find_objects": "_use",
    "found_boxes": "_pictures",
    "frames": "_frames",
    "freeze": "_recipe",
    "has_metrics": "_metrics",
    "image_result": "_results",
    "iou_pairs": "_boxes",
    "join_ranks": "_ranks",
    "label_path": "_dataset",
    "labelled_boxes": "_pictures",
    "load_weights": "_checkpoint",
    "parameter_groups": "_recipe",
    "plainly": "_validation",
    "precision_recall": "_plots",
    "prepare": "_material",
    "read_dataset": "_dataset",
    "read_order": "_order_file",
    "read_plain": "_checkpoint",
    "read_recipe": "_recipe",
    "read_results": "_results",
    "read_settings": "_settings_file",
    "read_split": "_dataset",
    "read_weights": "_checkpoint",
    "recipe_from": "_recipe",
    "sample": "_augment",
    "save_weights": "_checkpoint",
    "score": "_metrics",
    "set_rates": "_schedule",
    "settings_text": "_settings_file",
    "shared_images": "_dataset",
    "sheet": "_pictures",
    "should_stop": "_schedule",
    "split_batch": "_loss",
    "suppress": "_suppression",
    "to_centres": "_boxes",
    "to_corners": "_boxes",
    "train": "_training",
    "validate": "_validation",
    "validation_loader": "_validation",
    "write_embedded": "_embedded",
    "write_results": "_results",
    "yolov5": "_network",
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
