"""Only the pixels that are needed: whole images at the nearest scale, windows by their rows or tiles. No torch."""

from ._blocks import codecs
from ._cost import cost, reads_alone, windows_cost
from ._decode import decode, decode_windows
from ._geometry import Letterbox, Window, fitted, letterbox, place, stored_size
from ._picture import Picture
from ._raster import Raster, raster_of
from ._tone import Pixels
from ._turbo import turbo

__all__ = [
    "Letterbox",
    "Picture",
    "Pixels",
    "Raster",
    "Window",
    "codecs",
    "cost",
    "decode",
    "decode_windows",
    "fitted",
    "letterbox",
    "place",
    "raster_of",
    "reads_alone",
    "stored_size",
    "turbo",
    "windows_cost",
]
