"""Colors and the font of everything that is drawn."""

from __future__ import annotations

from functools import cache

from PIL import ImageFont

# Twelve colors that are easy to tell apart on photographs; further lines and classes reuse them.
COLORS = (
    (230, 60, 60),
    (60, 130, 240),
    (40, 180, 90),
    (250, 160, 30),
    (160, 80, 220),
    (20, 190, 200),
    (240, 90, 170),
    (150, 110, 60),
    (110, 110, 240),
    (190, 190, 30),
    (90, 150, 130),
    (240, 130, 110),
)
INK, GRAY, GRID, PAPER = (40, 40, 40), (120, 120, 120), (225, 225, 225), (255, 255, 255)

Box = tuple[float, float, float, float]  # left, top, right, bottom in pixels
Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


@cache
def font(size: int) -> Font:
    """Return Pillow's built-in font."""
    return ImageFont.load_default(size)


def fit_text(text: str, size: int, width: float) -> str:
    """Return a text, shortened at its end if it is wider than `width` pixels."""
    if font(size).getlength(text) <= width:
        return text
    kept = len(text)
    while kept and font(size).getlength(text[:kept].rstrip() + "...") > width:
        kept -= 1
    return text[:kept].rstrip() + "..."
