"""Only the pixels that are needed: whole images at the nearest scale, windows by their rows or tiles. No torch."""

from ._cost import cost, windows_cost
from ._decode import decode, decode_windows
from ._geometry import Letterbox, Window, fitted, letterbox, place
from ._picture import Picture
from ._raster import Raster, raster_of
from ._tone import Pixels

__all__ = [
    "Letterbox",
    "Picture",
    "Pixels",
    "Raster",
    "Window",
    "cost",
    "decode",
    "decode_windows",
    "fitted",
    "letterbox",
    "place",
    "raster_of",
    "windows_cost",
]
