"""Batches from images within a budget of bytes. Torch only where a tensor is made."""

from ._batch import Batch
from ._loader import Loader
from ._order import Order, Planned, Shuffled
from ._recipe import Piece, Recipe, Transform, Want, Whole

__all__ = ["Batch", "Loader", "Order", "Piece", "Planned", "Recipe", "Shuffled", "Transform", "Want", "Whole"]
