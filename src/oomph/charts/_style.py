"""Colors of everything that is drawn, and the font of text on images."""

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
INK, GRAY, PAPER = "#282828", "#787878", "white"

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


def hex_color(index: int) -> str:
    """Return the color of a line or class as matplotlib reads it."""
    red, green, blue = COLORS[index % len(COLORS)]
    return f"#{red:02x}{green:02x}{blue:02x}"


@cache
def font(size: int) -> Font:
    """Return Pillow's built-in font."""
    return ImageFont.load_default(size)
