"""One value for what every format says of an image."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntFlag

from ...errors import OomphError

_ROTATED = 5  # EXIF orientations from here on swap width and height


class UnreadableImage(OomphError):
    """An image that can't be used; `why` is the reason it is set aside with."""

    def __init__(self, why: str, fix: str = "mend or remove the file") -> None:
        super().__init__(why, fix)


class Flag(IntFlag):
    """What is unusual about an image."""

    PROGRESSIVE = 1  # the whole image's coefficients are held while it is decoded
    ALPHA = 2
    PALETTE = 4
    CMYK = 8
    ANIMATED = 16  # the first frame is the image
    INTERLACED = 32
    TILED = 64  # tiles or strips that can be read one by one
    PLANAR = 128  # bands are stored one after another
    INVERTED = 256  # CMYK as Adobe writes it, or TIFF where white is zero
    BIGENDIAN = 512
    FORTRAN = 1024  # a .npy in column order
    MISNAMED = 2048  # the suffix names another format
    PACKED = 4096  # samples that only Pillow unpacks: several in a byte, or colours of fewer pixels


_PLAIN = Flag(0)


@dataclass(frozen=True)
class Header:
    """An image file, from its header.

    Attributes:
        format: "jpeg", "png", "webp", "bmp", "gif", "tiff" or "npy".
        width: columns as stored, before any EXIF rotation.
        height: rows as stored.
        bands: samples of a pixel.
        dtype: numpy's name of a sample's type.
        orientation: EXIF's number, 1 to 8.
        flags: what is unusual.
        coefficients: bytes libjpeg holds for the whole image while decoding; 0 where it needs some rows only.
        restart: MCUs between restart markers; 0 without.
        block_width: columns of a tile, strip or MCU.
        block_height: rows of it.
        compression: TIFF's number; 0 elsewhere.
        size: bytes of the file.
        mtime_ns: when it was changed.
    """

    format: str
    width: int
    height: int
    bands: int = 3
    dtype: str = "uint8"
    orientation: int = 1
    flags: Flag = _PLAIN
    coefficients: int = 0
    restart: int = 0
    block_width: int = 0
    block_height: int = 0
    compression: int = 0
    size: int = 0
    mtime_ns: int = 0

    @property
    def shown(self) -> tuple[int, int]:
        """Width and height as they are seen, after the EXIF rotation."""
        return (self.height, self.width) if self.orientation >= _ROTATED else (self.width, self.height)

    @property
    def pixels(self) -> int:
        """Width times height."""
        return self.width * self.height
