"""Windows of large images: a grid for use, a balanced choice for training, and the way back to the whole image."""

from ._clip import clip
from ._grid import Tiles
from ._stitch import Found, stitch
from ._training import TileOrder, TileRecipe
from ._use import GridRecipe, Tile

__all__ = ["Found", "GridRecipe", "Tile", "TileOrder", "TileRecipe", "Tiles", "clip", "stitch"]
