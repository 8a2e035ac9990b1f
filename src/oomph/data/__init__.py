"""Images by the header: indexed, decoded, cut and loaded within a budget of bytes. No torch at import."""

from ._index import Aside, ImageIndex
from .decode import Letterbox, Picture, Pixels, Window, decode, decode_windows
from .headers import Broken, Flag, Header, read_header
from .loader import Batch, Loader, Order, Piece, Planned, Recipe, Shuffled, Transform, Want, Whole

__all__ = [
    "Aside",
    "Batch",
    "Broken",
    "Flag",
    "Header",
    "ImageIndex",
    "Letterbox",
    "Loader",
    "Order",
    "Picture",
    "Piece",
    "Pixels",
    "Planned",
    "Recipe",
    "Shuffled",
    "Transform",
    "Want",
    "Whole",
    "Window",
    "decode",
    "decode_windows",
    "read_header",
]
