"""Text in charts: any script that a font is installed for, and never read as a formula."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, cast

from ._library import load_matplotlib

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure

_FAMILY = "DejaVu Sans"  # comes with matplotlib
_LAST_RESORT = "Last Resort"  # has a box for every character
_MAX_LENGTH = 30
_MISSING = "?"


def drawable_texts(texts: Sequence[str], max_length: int = _MAX_LENGTH) -> list[str]:
    """Return texts on one line each, shortened, with a question mark for each character that no font has."""
    lines = [_shortened(_one_line(text), max_length) for text in texts]
    missing = _find_fonts(frozenset("".join(lines)))[1]
    return ["".join(_MISSING if character in missing else character for character in line) for line in lines]


def prepare_texts(figure: Figure | SubFigure) -> None:
    """Select fonts for all texts of a figure, and switch formulas off: a class may be called `$x_$`."""
    from matplotlib.text import Text  # noqa: PLC0415

    texts = cast("list[Text]", figure.findobj(Text))
    families, _ = _find_fonts(frozenset("".join(text.get_text() for text in texts)))
    for text in texts:
        text.set_fontfamily(list(families))
        text.set_parse_math(False)
        text.set_usetex(False)


def _one_line(text: str) -> str:
    return " ".join("".join(character if character.isprintable() else " " for character in text).split())


def _shortened(text: str, max_length: int) -> str:
    return text if len(text) <= max_length else text[: max_length - 1].rstrip() + "…"


@cache
def _find_fonts(characters: frozenset[str]) -> tuple[tuple[str, ...], frozenset[str]]:
    """Return the font families that have these characters, and the characters that none has."""
    load_matplotlib()
    from matplotlib.font_manager import fontManager  # noqa: PLC0415

    missing = {character for character in characters if character.isprintable()}
    families = [_FAMILY]
    # The default font first; others are opened only for characters that it lacks.
    for entry in sorted(fontManager.ttflist, key=lambda entry: entry.name != _FAMILY):
        if not missing:
            break
        if entry.name.startswith(_LAST_RESORT) or (entry.name == _FAMILY and entry.style != "normal"):
            continue
        available = _available(entry.fname, missing)
        if available and entry.name not in families:
            families.append(entry.name)
        missing -= available
    return tuple(families), frozenset(missing)


def _available(path: str, characters: set[str]) -> set[str]:
    """Return the characters that a font file has; none if it can't be read, or has pictures instead of outlines."""
    from matplotlib.ft2font import FT2Font  # noqa: PLC0415

    try:
        font = FT2Font(path)
    except (OSError, RuntimeError):
        return set()
    return {character for character in characters if font.scalable and font.get_char_index(ord(character))}
