"""Windows of large images: a grid for use, a balanced choice for training, and the way back to the whole image."""

from ._clip import clip_boxes
from ._grid import Tiles
from ._stitch import Detections, merge_tiles
from ._training import TileSampler, TileSamples
from ._use import Tile, TileGridSamples

__all__ = ["Detections", "Tile", "TileGridSamples", "TileSampler", "TileSamples", "Tiles", "clip_boxes", "merge_tiles"]
