"""The header of an image file, in the same form for every format."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntFlag

from ...errors import OomphError

_FIRST_ROTATED = 5  # EXIF orientations 5 to 8 swap width and height


class UnreadableImage(OomphError):
    """An image file that can't be used; `why` is the reason listed with the skipped file."""

    def __init__(self, why: str, fix: str = "repair or remove the file") -> None:
        super().__init__(why, fix)


class ImageFlag(IntFlag):
    """Unusual properties of an image file."""

    PROGRESSIVE = 1  # decoding holds the coefficients of the whole image
    ALPHA = 2
    PALETTE = 4
    CMYK = 8
    ANIMATED = 16  # only the first frame is used
    INTERLACED = 32
    TILED = 64  # tiles or strips that can be read separately
    PLANAR = 128  # bands are stored one after another
    INVERTED = 256  # CMYK as Adobe writes it, or a TIFF in which zero is white
    BIGENDIAN = 512
    FORTRAN = 1024  # a .npy array in column order
    MISNAMED = 2048  # the suffix belongs to another format
    PACKED = 4096  # samples that only Pillow unpacks: several per byte, or subsampled chroma


_NO_FLAGS = ImageFlag(0)


@dataclass(frozen=True)
class Header:
    """Properties of an image file, read from its header.

    Attributes:
        format: "jpeg", "png", "webp", "bmp", "gif", "tiff" or "npy".
        width: columns as stored, before EXIF rotation.
        height: rows as stored, before EXIF rotation.
        bands: samples per pixel.
        dtype: NumPy name of the sample type.
        orientation: EXIF orientation, 1 to 8.
        flags: unusual properties.
        coefficient_bytes: bytes of DCT coefficients that libjpeg holds for the whole image; 0 if it decodes row by row.
        restart_interval: MCUs between JPEG restart markers; 0 without markers.
        block_width: columns of a tile, strip or MCU.
        block_height: rows of a tile, strip or MCU.
        compression: TIFF compression number; 0 for other formats.
        file_size: bytes of the file.
        mtime_ns: modification time of the file.
    """

    format: str
    width: int
    height: int
    bands: int = 3
    dtype: str = "uint8"
    orientation: int = 1
    flags: ImageFlag = _NO_FLAGS
    coefficient_bytes: int = 0
    restart_interval: int = 0
    block_width: int = 0
    block_height: int = 0
    compression: int = 0
    file_size: int = 0
    mtime_ns: int = 0

    @property
    def display_size(self) -> tuple[int, int]:
        """Width and height after EXIF rotation."""
        return (self.height, self.width) if self.orientation >= _FIRST_ROTATED else (self.width, self.height)

    @property
    def pixel_count(self) -> int:
        """Width times height."""
        return self.width * self.height
