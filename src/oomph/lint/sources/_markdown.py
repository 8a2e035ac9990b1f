"""Markdown: the pieces of code in its fences, in HTML and in indented blocks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from .._piece import Piece, PieceLine
from ._html import MAX_HTML_LINES, html_block
from ._languages import guess_language, is_markdown, language_of

_MARKER = r"(?:[-*+]|\d{1,9}[.)])[ \t]+"
_OPEN = re.compile(rf"^(?P<indent>[ \t>]*(?:{_MARKER})*)(?P<fence>`{{3,}}|~{{3,}})(?P<info>[^`]*)$")
_LIST_ITEM = re.compile(rf"^[ \t>]*{_MARKER}")
_DIRECTIVE = re.compile(r"^\{(?:code-block|code-cell|code|sourcecode|literalinclude)\}\s*(?P<language>[\w+-]*)")
_LANGUAGE = re.compile(r"^\{?\s*\.?(?P<language>[\w+#-]*)")
_CODE_INDENT = 4
_MAX_NESTING = 3


def markdown_pieces(lines: Sequence[str]) -> Iterator[Piece]:
    """Yield the Python and shell code of a text."""
    yield from _pieces([PieceLine(text, number) for number, text in enumerate(lines, 1)], 0)


def _pieces(lines: Sequence[PieceLine], depth: int) -> Iterator[Piece]:
    row = 0
    is_after_blank, is_in_list = True, False
    html_from = 0  # no `<pre>` is closed before this row
    while row < len(lines):
        text = lines[row].text
        if (match := _OPEN.match(text)) is not None:
            end, row_after = _end_of_fence(lines, row + 1, match["fence"], match["indent"])
            content = [_without_indent(line, match["indent"]) for line in lines[row + 1 : end]]
            name = _language_name(match["info"])
            if is_markdown(name) and depth < _MAX_NESTING:
                yield from _pieces(content, depth + 1)
            elif (language := language_of(name, content)) is not None:
                yield Piece(language, tuple(content))
            row = row_after
        elif row >= html_from and "<pre" in text and (block := html_block(lines, row)) is not None:
            if (language := language_of(block.language, block.lines)) is not None:
                yield Piece(language, tuple(block.lines))
            row = max(block.end, row + 1)
        elif is_after_blank and not is_in_list and _is_indented(text):
            end = _end_of_block(lines, row)
            content = [_without_indent(line, " " * _CODE_INDENT) for line in lines[row:end]]
            if (language := guess_language(content)) is not None:
                yield Piece(language, tuple(content))
            row = end
        else:
            html_from = row + MAX_HTML_LINES if row >= html_from and "<pre" in text else html_from
            is_in_list = (is_in_list and (not text.strip() or text[0] in " \t")) or _LIST_ITEM.match(text) is not None
            is_after_blank = not text.strip()
            row += 1
            continue
        is_after_blank = True


def _language_name(info: str) -> str:
    """Return the language in the text after a fence's opening: `python`, `{.python .numberLines}`, `py:a.py`."""
    info = info.strip()
    match = _DIRECTIVE.match(info) or _LANGUAGE.match(info)
    return match["language"] if match else ""


def _end_of_fence(lines: Sequence[PieceLine], start: int, fence: str, indent: str) -> tuple[int, int]:
    """Return the line after a fence's content and the one after the fence: at its closing, or where its quote ends."""
    closing = re.compile(rf"^[ \t>]*{re.escape(fence)}{re.escape(fence[0])}*[ \t]*$")
    is_quoted = ">" in indent
    for row in range(start, len(lines)):
        text = lines[row].text
        if fence in text and closing.match(text):
            return row, row + 1
        if is_quoted and ">" not in text[: len(indent) + 3]:
            return row, row
    return len(lines), len(lines)


def _without_indent(line: PieceLine, indent: str) -> PieceLine:
    """Return a line without the indentation or quote marks of its fence."""
    text, common = line.text, 0
    quotes = indent.count(">")
    while common < min(len(indent), len(text)) and (text[common] in " \t" or (text[common] == ">" and quotes)):
        quotes -= text[common] == ">"
        common += 1
    return PieceLine(text[common:], line.line, line.column + common)


def _is_indented(text: str) -> bool:
    return (text.startswith((" " * _CODE_INDENT, "\t"))) and text.strip() != ""


def _end_of_block(lines: Sequence[PieceLine], row: int) -> int:
    """Return the line after an indented block; blank lines at its end don't belong to it."""
    end = row
    while row < len(lines) and (_is_indented(lines[row].text) or not lines[row].text.strip()):
        row += 1
        if lines[row - 1].text.strip():
            end = row
    return end
