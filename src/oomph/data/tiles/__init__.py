"""Windows of large images: a grid for inference, random windows for training, and merging of detections."""

from ._clip import clip_boxes
from ._grid import Tiles
from ._inference import Tile, TileGridSamples
from ._merge import Detections, merge_tiles
from ._training import TileDraws, TileSampler, TileSamples

__all__ = [
    "Detections",
    "Tile",
    "TileDraws",
    "TileGridSamples",
    "TileSampler",
    "TileSamples",
    "Tiles",
    "clip_boxes",
    "merge_tiles",
]
