"""HTML in Markdown: code in `<pre>` elements."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from .._piece import PieceLine

_START = re.compile(r"<pre(?P<pre>[^>]*)>\s*(?:<code(?P<code>[^>]*)>)?", re.IGNORECASE)
_END = re.compile(r"</code>|</pre>", re.IGNORECASE)
_LANGUAGE = re.compile(
    r"(?:language-|lang-|highlight-source-|lang=[\"']?|class=[\"'](?!lang|highlight))(\w+)", re.IGNORECASE
)
_ENTITY = re.compile(r"&(lt|gt|amp|quot|apos|#39|#x27|#34|nbsp);")
_CHARACTERS = {
    "lt": "<", "gt": ">", "amp": "&", "quot": '"', "apos": "'", "#39": "'", "#x27": "'", "#34": '"', "nbsp": " ",
}  # fmt: skip
MAX_HTML_LINES = 2000  # an element that is closed later is not about code


@dataclass(frozen=True)
class HtmlBlock:
    """The code of a `<pre>` element: its lines, the language that it names, and the row after it."""

    lines: Sequence[PieceLine]
    language: str
    end: int


def html_block(lines: Sequence[PieceLine], row: int) -> HtmlBlock | None:
    """Return the `<pre>` element that starts in a line; None if the line has none or it isn't closed."""
    match = _START.search(lines[row].text)
    if match is None:
        return None
    language = _LANGUAGE.search(f"{match['pre']} {match['code'] or ''}")
    content: list[PieceLine] = []
    for number in range(row, min(row + MAX_HTML_LINES, len(lines))):
        line = lines[number]
        start = match.end() if number == row else 0
        end = _END.search(line.text, start)
        text = _decode(line.text[start : end.start() if end else None])
        content.append(PieceLine(text, line.line, line.column + start))
        if end is not None:
            name = language[1] if language else ""
            return HtmlBlock(content, "" if name in {"code", "highlight", "pre", "prettyprint"} else name, number + 1)
    return None


def _decode(text: str) -> str:
    """Return a text with its entities as characters, padded with spaces so that every column stays the same."""
    quotes = 0

    def character(match: re.Match[str]) -> str:
        nonlocal quotes
        value = _CHARACTERS[match[1]]
        padding = " " * (len(match[0]) - 1)
        if value in "\"'":
            quotes += 1
            return value + padding if quotes % 2 == 0 else padding + value
        # `->` and `>>` must stay together, as must `>=`.
        is_second = match.start() > 0 and text[match.start() - 1] in "-<>;=!"
        return value + padding if is_second else padding + value

    return _ENTITY.sub(character, text)
