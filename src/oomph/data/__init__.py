"""Images by the header: indexed, decoded, cut and loaded within a budget of bytes. No torch at import."""

from ._index import Aside, ImageIndex
from .headers import Broken, Flag, Header, read_header

__all__ = ["Aside", "Broken", "Flag", "Header", "ImageIndex", "read_header"]
