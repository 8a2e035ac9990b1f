"""Pictures of a run, reduced and embedded into a page."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass

from ._run_files import PictureFile

_MAX_SIDE = 1600  # pixels
_QUALITY = 80


@dataclass(frozen=True)
class Picture:
    """An embedded picture: its address, its size in pixels and what it shows."""

    address: str
    width: int
    height: int
    description: str


def embed(file: PictureFile) -> Picture | None:
    """Return a picture as a JPEG inside the page; None if it can't be read."""
    from PIL import Image, UnidentifiedImageError  # noqa: PLC0415  most commands show no pictures

    try:
        with Image.open(file.path) as image:
            reduced = image.convert("RGB")
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError, ValueError):
        return None
    reduced.thumbnail((_MAX_SIDE, _MAX_SIDE))
    content = io.BytesIO()
    reduced.save(content, format="JPEG", quality=_QUALITY)
    address = "data:image/jpeg;base64," + base64.b64encode(content.getvalue()).decode()
    return Picture(address, *reduced.size, file.description)
