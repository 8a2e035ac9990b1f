"""Images by the header: indexed, decoded, cut and loaded within a budget of bytes. No torch at import."""

from ._cache import Cache
from ._device import on_device
from ._host import PER_PIXEL, HostLoad, HostMemory, default_budget, predict_host
from ._index import Aside, ImageIndex
from ._labelled import Chosen, Labelled
from ._labels import Fault, Labels, read_classes, read_coco, read_yolo, yolo_label
from ._room import Room, read_room, usable_cores
from ._survey import Survey, sample_bytes, survey
from ._transcode import transcode
from ._workers import WorkerPlan, plan_workers
from .decoding import Letterbox, Picture, Pixels, Window, cost, decode, decode_windows, fitted, place, windows_cost
from .headers import Broken, Flag, Header, read_header
from .loader import (
    Batch,
    Decision,
    HostOptions,
    HostPlan,
    Loader,
    LoadReport,
    Measured,
    Order,
    Pace,
    Piece,
    Planned,
    Recipe,
    Share,
    Shuffled,
    Transform,
    Want,
    Whole,
    plan_host,
)
from .tiles import Found, GridRecipe, Tile, TileOrder, TileRecipe, Tiles, clip, stitch

__all__ = [
    "PER_PIXEL",
    "Aside",
    "Batch",
    "Broken",
    "Cache",
    "Chosen",
    "Decision",
    "Fault",
    "Flag",
    "Found",
    "GridRecipe",
    "Header",
    "HostLoad",
    "HostMemory",
    "HostOptions",
    "HostPlan",
    "ImageIndex",
    "Labelled",
    "Labels",
    "Letterbox",
    "LoadReport",
    "Loader",
    "Measured",
    "Order",
    "Pace",
    "Picture",
    "Piece",
    "Pixels",
    "Planned",
    "Recipe",
    "Room",
    "Share",
    "Shuffled",
    "Survey",
    "Tile",
    "TileOrder",
    "TileRecipe",
    "Tiles",
    "Transform",
    "Want",
    "Whole",
    "Window",
    "WorkerPlan",
    "clip",
    "cost",
    "decode",
    "decode_windows",
    "default_budget",
    "fitted",
    "on_device",
    "place",
    "plan_host",
    "plan_workers",
    "predict_host",
    "read_classes",
    "read_coco",
    "read_header",
    "read_room",
    "read_yolo",
    "sample_bytes",
    "stitch",
    "survey",
    "transcode",
    "usable_cores",
    "windows_cost",
    "yolo_label",
]
