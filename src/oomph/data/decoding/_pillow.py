"""Decoding by Pillow: every format, and JPEG at a reduced scale.

Images are opened by the plug-in of their format, because Image.open limits the number of pixels. The loader limits
bytes instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray
from PIL import BmpImagePlugin, GifImagePlugin, Image, JpegImagePlugin, PngImagePlugin, TiffImagePlugin, WebPImagePlugin

from ..headers import Header, ImageFlag, UnreadableImage
from ._geometry import Window
from ._pixel_conversion import PixelConversion, to_uint8

_PLUGINS: dict[str, Callable[[Any], Image.Image]] = {
    "jpeg": JpegImagePlugin.JpegImageFile,
    "png": PngImagePlugin.PngImageFile,
    "webp": WebPImagePlugin.WebPImageFile,
    "bmp": BmpImagePlugin.BmpImageFile,
    "gif": GifImagePlugin.GifImageFile,
    "tiff": TiffImagePlugin.TiffImageFile,
}
_REDUCING_GAP = 2.0  # shrink by integer factors down to twice the target size, then filter
_BAND_ROWS = 256  # rows converted at a time
_BYTE_MODES = {"RGB", "L"}
_READ_BYTES = 512 * 1024  # bytes given to the decoder at once: Pillow's 64 KiB cost 3% more time on a large JPEG
_DEFAULT_FIX = "repair or remove the file"


def open_image(file: IO[bytes], header: Header) -> Image.Image:
    """Open an image without decoding its pixels."""
    with _as_unreadable("install the extra oomph[images]" if header.format == "tiff" else _DEFAULT_FIX):
        image = _PLUGINS[header.format](file)
    if image.size != (header.width, header.height) and header.format != "tiff":
        raise UnreadableImage("damaged: Pillow reads another size than the header has")
    if image.info.get("progressive") and not header.coefficient_bytes:
        raise UnreadableImage("changed since it was indexed, and needs more memory now", "index the folder again")
    return image


def load_pixels(image: Image.Image) -> None:
    """Decode the pixels of an open image."""
    with _as_unreadable():
        image.load()


@contextmanager
def _as_unreadable(fix: str = _DEFAULT_FIX) -> Iterator[None]:
    """Convert exceptions that Pillow raises for a damaged file to UnreadableImage; let I/O and memory errors pass."""
    try:
        yield
    except (MemoryError, UnreadableImage):
        raise
    except Exception as error:
        # Pillow raises OSError for decoding errors too; only errors of the system have an errno.
        if isinstance(error, OSError) and error.errno is not None:
            raise
        text = str(error) or type(error).__name__
        raise UnreadableImage(f"can't be decoded: {text[:100]}", fix) from None


def decode_resized(
    image: Image.Image, header: Header, size: tuple[int, int], conversion: PixelConversion
) -> NDArray[np.uint8]:
    """Decode an image and resize it, without EXIF rotation."""
    if header.format == "jpeg":
        image.draft("L" if header.bands == 1 else "RGB", (max(size[0] * 2, 1), max(size[1] * 2, 1)))
        image.decodermaxblock = _READ_BYTES  # type: ignore[attr-defined]  # an attribute of ImageFile
    load_pixels(image)
    factor = max(int(min(image.width / size[0], image.height / size[1]) / _REDUCING_GAP), 1)
    box: tuple[float, float, float, float] = (0.0, 0.0, float(image.width), float(image.height))
    if image.mode not in _BYTE_MODES or conversion.levels is not None:
        box = (0.0, 0.0, image.width / factor, image.height / factor)
        image = _convert_reduced(image, factor, conversion)
    return np.asarray(image.resize(size, Image.Resampling.BICUBIC, box=box, reducing_gap=_REDUCING_GAP))


def decode_crops(image: Image.Image, windows: list[Window], conversion: PixelConversion) -> list[NDArray[np.uint8]]:
    """Decode an image and copy windows out of it."""
    load_pixels(image)
    return [np.asarray(_convert(image.crop(window), conversion)) for window in windows]


def _convert_reduced(image: Image.Image, factor: int, conversion: PixelConversion) -> Image.Image:
    """Convert to bytes and shrink by an integer factor, in bands of rows to avoid a second full-size copy."""
    rows = max(_BAND_ROWS // factor, 1) * factor
    reduced: Image.Image | None = None
    for top in range(0, image.height, rows):
        bottom = min(top + rows, image.height)
        band = _convert(image.crop((0, top, image.width, bottom)), conversion)
        band = band.reduce(factor) if factor > 1 else band
        if reduced is None:
            reduced = Image.new(band.mode, (band.width, -(-image.height // factor)))
        reduced.paste(band, (0, top // factor))
    assert reduced is not None  # noqa: S101  an image has at least one row
    return reduced


def _convert(image: Image.Image, conversion: PixelConversion) -> Image.Image:
    """Convert an image to 8-bit gray or RGB; transparency is ignored."""
    if image.mode.startswith("I;16") or image.mode in {"I", "F"}:
        samples = np.asarray(image)
        if image.mode == "I":  # 16-bit samples in 32 bits
            samples = np.clip(samples, 0, 65535).astype(np.uint16)
        return Image.fromarray(to_uint8(samples, conversion.levels))
    if image.mode in {"1", "LA", "La"}:
        image = image.convert("L")
    elif image.mode not in _BYTE_MODES:
        image = image.convert("RGB")
    if conversion.levels is not None:
        return Image.fromarray(to_uint8(np.asarray(image), conversion.levels))
    return image


def pixel_bytes(header: Header) -> int:
    """Return the bytes that Pillow stores per pixel."""
    if header.bands == 1 and header.dtype in {"uint8", "uint16"}:
        if header.dtype == "uint16":
            return 2
        return 4 if header.flags & ImageFlag.ALPHA and header.format != "png" else 1
    return 4
