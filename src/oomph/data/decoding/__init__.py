"""Only the pixels that are needed: whole images at the nearest scale, windows by their rows or tiles. No torch."""

from ._blocks import codecs
from ._cost import decode_cost, decode_windows_cost, has_random_access
from ._decode import decode, decode_windows
from ._geometry import Letterbox, Window, fit_size, letterbox, paste_letterbox, stored_size
from ._picture import Picture
from ._raster import Raster, raster_of
from ._tone import PixelConversion
from ._turbo import turbo

__all__ = [
    "Letterbox",
    "Picture",
    "PixelConversion",
    "Raster",
    "Window",
    "codecs",
    "decode",
    "decode_cost",
    "decode_windows",
    "decode_windows_cost",
    "fit_size",
    "has_random_access",
    "letterbox",
    "paste_letterbox",
    "raster_of",
    "stored_size",
    "turbo",
]
