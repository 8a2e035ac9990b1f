"""Plots of training and validation, boxes drawn on images, and grids of images."""

from ._confusion_plot import confusion_plot
from ._curve_plots import f1_plot, precision_plot, precision_recall_plot, recall_plot
from ._drawing import DrawnBox, draw_boxes, label_boxes, prediction_boxes
from ._epoch_plots import memory_plot, results_plot
from ._grids import image_grid, image_png, prediction_grid, training_grid
from ._labels_plot import labels_plot
from ._thumbnails import detection_image
from ._validation_plots import validation_plots

__all__ = [
    "DrawnBox",
    "confusion_plot",
    "detection_image",
    "draw_boxes",
    "f1_plot",
    "image_grid",
    "image_png",
    "label_boxes",
    "labels_plot",
    "memory_plot",
    "precision_plot",
    "precision_recall_plot",
    "prediction_boxes",
    "prediction_grid",
    "recall_plot",
    "results_plot",
    "training_grid",
    "validation_plots",
]
