"""Decoding of as few pixels as needed: whole images at a reduced scale, windows by rows or tiles. No torch."""

from ._cost import decode_cost, decode_windows_cost, has_random_access
from ._decode import decode, decode_windows
from ._geometry import Letterbox, Window, fit_size, letterbox, paste_letterbox, stored_size
from ._picture import Picture
from ._pixel_conversion import PixelConversion
from ._raster import Raster, open_raster
from ._simplejpeg import load_simplejpeg
from ._tiff_blocks import load_imagecodecs

__all__ = [
    "Letterbox",
    "Picture",
    "PixelConversion",
    "Raster",
    "Window",
    "decode",
    "decode_cost",
    "decode_windows",
    "decode_windows_cost",
    "fit_size",
    "has_random_access",
    "letterbox",
    "load_imagecodecs",
    "load_simplejpeg",
    "open_raster",
    "paste_letterbox",
    "stored_size",
]
