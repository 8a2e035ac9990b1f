"""Image datasets: indexing by header, decoding, tiling and loading within a budget of bytes. No torch at import."""

from ._cache import Cache
from ._class_folder import ClassFolder
from ._image_files import ImageFile, walk_images
from ._index import ImageIndex, SkippedImage
from ._labels import Labels, read_classes, read_coco, read_yolo, yolo_label_path
from ._loader_memory import PER_PIXEL, LoaderMemory, LoaderWorkload, default_budget, predict_loader_memory
from ._prefetch import prefetch_to_device
from ._profile import DatasetProfile, profile_dataset, sample_bytes
from ._resources import HostResources, read_resources, usable_cores
from ._sampler import BatchSampler, BatchSpec, Shard, ShuffledSampler
from ._samples import (
    BoxTarget,
    DecodedImage,
    ImageRequest,
    LabeledSamples,
    LetterboxSamples,
    SampleBuilder,
    StretchedSamples,
    TransformedSamples,
)
from ._transcode import transcode
from ._value_range import to_value_range
from ._worker_plan import WorkerPlan, plan_workers
from ._worst_batch import worst_batch
from ._yolo_labels import LabelIssue, YoloLabels, parse_yolo_labels
from .decoding import (
    Letterbox,
    Picture,
    PixelConversion,
    Window,
    decode,
    decode_cost,
    decode_windows,
    decode_windows_cost,
    fit_size,
    has_random_access,
    paste_letterbox,
)
from .headers import Header, ImageFlag, UnreadableImage, read_header
from .loader import (
    Batch,
    BatchReader,
    Loader,
    LoaderMeasurement,
    LoaderOptions,
    LoaderPlan,
    LoaderReport,
    PlanDecision,
    ReadBatch,
    Timings,
    plan_loader,
)
from .tiles import (
    Detections,
    Tile,
    TileDraws,
    TileGridSamples,
    Tiles,
    TileSampler,
    TileSamples,
    clip_boxes,
    merge_tiles,
)

__all__ = [
    "PER_PIXEL",
    "Batch",
    "BatchReader",
    "BatchSampler",
    "BatchSpec",
    "BoxTarget",
    "Cache",
    "ClassFolder",
    "DatasetProfile",
    "DecodedImage",
    "Detections",
    "Header",
    "HostResources",
    "ImageFile",
    "ImageFlag",
    "ImageIndex",
    "ImageRequest",
    "LabelIssue",
    "LabeledSamples",
    "Labels",
    "Letterbox",
    "LetterboxSamples",
    "Loader",
    "LoaderMeasurement",
    "LoaderMemory",
    "LoaderOptions",
    "LoaderPlan",
    "LoaderReport",
    "LoaderWorkload",
    "Picture",
    "PixelConversion",
    "PlanDecision",
    "ReadBatch",
    "SampleBuilder",
    "Shard",
    "ShuffledSampler",
    "SkippedImage",
    "StretchedSamples",
    "Tile",
    "TileDraws",
    "TileGridSamples",
    "TileSampler",
    "TileSamples",
    "Tiles",
    "Timings",
    "TransformedSamples",
    "UnreadableImage",
    "Window",
    "WorkerPlan",
    "YoloLabels",
    "clip_boxes",
    "decode",
    "decode_cost",
    "decode_windows",
    "decode_windows_cost",
    "default_budget",
    "fit_size",
    "has_random_access",
    "merge_tiles",
    "parse_yolo_labels",
    "paste_letterbox",
    "plan_loader",
    "plan_workers",
    "predict_loader_memory",
    "prefetch_to_device",
    "profile_dataset",
    "read_classes",
    "read_coco",
    "read_header",
    "read_resources",
    "read_yolo",
    "sample_bytes",
    "to_value_range",
    "transcode",
    "usable_cores",
    "walk_images",
    "worst_batch",
    "yolo_label_path",
]
