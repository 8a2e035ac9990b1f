"""What an image file says about itself before a pixel is decoded. No torch."""

from ._header import Flag, Header, UnreadableImage
from ._jpeg import Scan, read_scan
from ._read import SUFFIXES, read_header
from ._reader import Reader
from ._tiff import Layout, read_layouts

__all__ = [
    "SUFFIXES",
    "Flag",
    "Header",
    "Layout",
    "Reader",
    "Scan",
    "UnreadableImage",
    "read_header",
    "read_layouts",
    "read_scan",
]
