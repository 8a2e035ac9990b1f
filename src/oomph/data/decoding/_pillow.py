"""Decoding through Pillow: every format, JPEG at a fraction of its size.

Images are opened by their own plug-in: Image.open refuses by a number of pixels, and we have counted bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray
from PIL import BmpImagePlugin, GifImagePlugin, Image, JpegImagePlugin, PngImagePlugin, TiffImagePlugin, WebPImagePlugin

from ..headers import Flag, Header, UnreadableImage
from ._geometry import Window
from ._tone import PixelConversion, to_bytes

_PLUGINS: dict[str, Callable[[Any], Image.Image]] = {
    "jpeg": JpegImagePlugin.JpegImageFile,
    "png": PngImagePlugin.PngImageFile,
    "webp": WebPImagePlugin.WebPImageFile,
    "bmp": BmpImagePlugin.BmpImageFile,
    "gif": GifImagePlugin.GifImageFile,
    "tiff": TiffImagePlugin.TiffImageFile,
}
_GAP = 2.0  # shrinking by whole numbers stops at twice the target; the filter does the rest
_BAND = 256  # rows that are converted at a time
_PLAIN = {"RGB", "L"}
_BLOCK = 512 * 1024  # bytes of a file that a decoder is handed at once; Pillow's own 64 KiB cost a large JPEG 3% more


def opened(file: IO[bytes], header: Header) -> Image.Image:
    """An image whose pixels are not decoded yet."""
    fix = "install the extra oomph[images]" if header.format == "tiff" else "mend or remove the file"
    with _faults(fix):
        image = _PLUGINS[header.format](file)
    if image.size != (header.width, header.height) and header.format != "tiff":
        raise UnreadableImage("broken: its header and its picture have different sizes")
    if image.info.get("progressive") and not header.coefficients:
        raise UnreadableImage("changed since it was indexed, and takes more bytes now", "index it again")
    return image


def load(image: Image.Image) -> None:
    """Decode the pixels."""
    with _faults():
        image.load()


@contextmanager
def _faults(fix: str = "mend or remove the file") -> Iterator[None]:
    """Whatever Pillow raises on a damaged file is a reason to set it aside; the machine's own troubles are not."""
    try:
        yield
    except (MemoryError, UnreadableImage):
        raise
    except Exception as error:
        # Pillow tells decoding errors and those of the disk by the same class; only the latter have a number.
        if isinstance(error, OSError) and error.errno is not None:
            raise
        text = str(error) or type(error).__name__
        raise UnreadableImage(f"can't be decoded: {text[:100]}", fix) from None


def shrunk(image: Image.Image, header: Header, size: tuple[int, int], pixels: PixelConversion) -> NDArray[np.uint8]:
    """Decode an image and shrink or enlarge it to a size; stays in the file's own directions."""
    if header.format == "jpeg":
        twice = (max(size[0] * 2, 1), max(size[1] * 2, 1))
        image.draft("L" if header.bands == 1 else "RGB", twice)
        image.decodermaxblock = _BLOCK  # type: ignore[attr-defined]  # any image that is read from a file has it
    load(image)
    factor = max(int(min(image.width / size[0], image.height / size[1]) / _GAP), 1)
    box: tuple[float, float, float, float] = (0.0, 0.0, float(image.width), float(image.height))
    if image.mode not in _PLAIN or pixels.levels is not None:
        box = (0.0, 0.0, image.width / factor, image.height / factor)
        image = _reduced(image, factor, pixels)
    small = image.resize(size, Image.Resampling.BICUBIC, box=box, reducing_gap=_GAP)
    return np.asarray(small)


def cut(image: Image.Image, windows: list[Window], pixels: PixelConversion) -> list[NDArray[np.uint8]]:
    """Decode an image and copy windows out of it."""
    load(image)
    return [np.asarray(_plain(image.crop(window), pixels)) for window in windows]


def _reduced(image: Image.Image, factor: int, pixels: PixelConversion) -> Image.Image:
    """Bring an image to bytes and shrink it by a whole number, some rows at a time, so that no second copy exists."""
    rows = max(_BAND // factor, 1) * factor
    small: Image.Image | None = None
    for top in range(0, image.height, rows):
        bottom = min(top + rows, image.height)
        band = _plain(image.crop((0, top, image.width, bottom)), pixels)
        band = band.reduce(factor) if factor > 1 else band
        if small is None:
            small = Image.new(band.mode, (band.width, -(-image.height // factor)))
        small.paste(band, (0, top // factor))
    assert small is not None  # noqa: S101  an image has a row
    return small


def _plain(image: Image.Image, pixels: PixelConversion) -> Image.Image:
    """An image in bytes, grey or in colours; what is transparent shows its colour."""
    if image.mode.startswith("I;16") or image.mode in {"I", "F"}:
        samples = np.asarray(image)
        if image.mode == "I":  # 16 bits, held in 32
            samples = np.clip(samples, 0, 65535).astype(np.uint16)
        return Image.fromarray(to_bytes(samples, pixels.levels))
    if image.mode in {"1", "LA", "La"}:
        image = image.convert("L")
    elif image.mode not in _PLAIN:
        image = image.convert("RGB")
    if pixels.levels is not None:
        return Image.fromarray(to_bytes(np.asarray(image), pixels.levels))
    return image


def mode_bytes(header: Header) -> int:
    """Bytes that Pillow keeps for a pixel."""
    if header.bands == 1 and header.dtype in {"uint8", "uint16"}:
        return 2 if header.dtype == "uint16" else 4 if header.flags & Flag.ALPHA and header.format != "png" else 1
    return 4
