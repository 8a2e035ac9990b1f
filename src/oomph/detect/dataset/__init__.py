"""Datasets: data.yaml, labels, augmentation, samples and tiles.

Worker processes import this package, so it must not import torch.
"""

from ._augmentation import (
    Augmentation,
    BoxRows,
    LabeledImages,
    build_sample,
    choose_images,
    compose_sample,
    fractions_to_pixels,
)
from ._data_yaml import Dataset, read_dataset
from ._demo import DEMO_IMGSZ, DEMO_NAMES, DemoSize, draw_scene, write_demo_dataset
from ._image_files import IMAGE_SUFFIXES, LIST_SUFFIXES
from ._indexed_split import IndexedSplit, image_shapes, index_split
from ._issues import DataIssue
from ._labels import LabelTable, label_path
from ._pixels import Pixels, gray_canvas, scale_into
from ._rect_sampler import RectangularSampler, RectBatch, rect_batches
from ._samples import LoadConfig, MosaicSamples, RectLetterboxSamples, collate_boxes
from ._split import Split, as_single_cls, read_split, shared_images
from ._tiles import (
    count_large_images,
    samples_per_epoch,
    suggest_tiles,
    tile_train_loader,
    tile_val_loader,
    tiling,
)

__all__ = [
    "DEMO_IMGSZ",
    "DEMO_NAMES",
    "IMAGE_SUFFIXES",
    "LIST_SUFFIXES",
    "Augmentation",
    "BoxRows",
    "DataIssue",
    "Dataset",
    "DemoSize",
    "IndexedSplit",
    "LabelTable",
    "LabeledImages",
    "LoadConfig",
    "MosaicSamples",
    "Pixels",
    "RectBatch",
    "RectLetterboxSamples",
    "RectangularSampler",
    "Split",
    "as_single_cls",
    "build_sample",
    "choose_images",
    "collate_boxes",
    "compose_sample",
    "count_large_images",
    "draw_scene",
    "fractions_to_pixels",
    "gray_canvas",
    "image_shapes",
    "index_split",
    "label_path",
    "read_dataset",
    "read_split",
    "rect_batches",
    "samples_per_epoch",
    "scale_into",
    "shared_images",
    "suggest_tiles",
    "tile_train_loader",
    "tile_val_loader",
    "tiling",
    "write_demo_dataset",
]
