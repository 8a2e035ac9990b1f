"""Charts, boxes drawn on images, and grids of images."""

from ._charts import epoch_chart, precision_recall_chart
from ._drawing import DrawnBox, draw_boxes, label_boxes, prediction_boxes
from ._grids import image_grid, prediction_grid, training_grid
from ._thumbnails import detection_image

__all__ = [
    "DrawnBox",
    "detection_image",
    "draw_boxes",
    "epoch_chart",
    "image_grid",
    "label_boxes",
    "precision_recall_chart",
    "prediction_boxes",
    "prediction_grid",
    "training_grid",
]
