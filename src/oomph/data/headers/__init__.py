"""Image headers: size, layout and EXIF orientation of a file, read without decoding pixels. No torch."""

from ._file_reader import FileReader
from ._formats import SUFFIXES, read_header
from ._header import Header, ImageFlag, UnreadableImage
from ._jpeg import JpegStructure, read_jpeg_structure
from ._tiff import TiffPage, read_pages

__all__ = [
    "SUFFIXES",
    "FileReader",
    "Header",
    "ImageFlag",
    "JpegStructure",
    "TiffPage",
    "UnreadableImage",
    "read_header",
    "read_jpeg_structure",
    "read_pages",
]
