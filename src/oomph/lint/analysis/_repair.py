"""Parsing of pieces that are no complete Python: notebook magics, prompts, indented or shortened snippets.

A repair changes lines in place and never adds or removes one, so that every line keeps its number.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace

from .._piece import PieceLine

_MAX_REPAIRS = 40  # of a snippet or block; of a file, where each attempt parses all of it, fewer
_MAX_FILE_REPAIRS = 3
_SNIPPET_LINES = 300
_MAX_BLOCK_LINES = 2000
_MAGIC = re.compile(r"^(\s*)(?:[%!?]|\w[\w.]*\?+\s*$)")
_ASSIGNED_MAGIC = re.compile(r"^(\s*[\w.,\s]+=\s*)[!%]\S.*$")
_PROMPT = re.compile(r"^(\s*(?:>>>|\.\.\.)(?: |$)|\s*In ?\[\d*\]: ?|\s*\.{3,}: ?)")
_SESSION = re.compile(r"^\s*(?:>>> |In ?\[\d*\]: )")
_BLOCK_OWNER = re.compile(r"on line (\d+)$")
_ORPHANS = (
    (re.compile(r"^(\s*)except\b.*:\s*(?:#.*)?$"), r"\1if 1:"),
    (re.compile(r"^(\s*)(?:else|finally)\s*:"), r"\1if 1:"),
    (re.compile(r"^(\s*)elif\b"), r"\1if"),
)
# A statement at the top level that isn't the rest of the one before it.
_TOP_LEVEL = re.compile(r"(?!(?:else|elif|except|finally)\b)[A-Za-z_@]")
_OLD_EXCEPT = re.compile(r"^(\s*except\s+[\w.()]+(?:\s*,\s*[\w.]+\))?)\s*,\s*(\w+)\s*:")
# Characters that word processors and web pages put into code, by those of the same width that Python knows.
_CHARACTERS = str.maketrans("\u201c\u201d\u2018\u2019\u00a0\u2026\u2212\u2013\u00d7\u200b\ufeff\0", "\"\"'' _--*   ")

Parsed = tuple[ast.Module, list[PieceLine]]


def parse_lines(lines: Sequence[PieceLine]) -> Parsed | None:
    """Return the tree of a piece and its lines after repairs; None if too little of it is Python."""
    tree = _parse([line.text for line in lines])
    if isinstance(tree, ast.Module):
        return tree, list(lines)
    prepared = _dedent(_without_magics(_without_prompts(_plain(lines))))
    is_snippet = len(lines) <= _SNIPPET_LINES
    parsed = _repaired(list(prepared), _MAX_REPAIRS if is_snippet else _MAX_FILE_REPAIRS)
    return parsed or _parse_blocks(prepared)


def is_python(lines: Sequence[PieceLine]) -> bool:
    """Return True if a piece is Python without any repair, apart from magics, prompts and a common indentation."""
    versions = (lines, _dedent(_without_magics(_without_prompts(_plain(lines)))))
    return any(isinstance(_parse([line.text for line in version]), ast.Module) for version in versions)


def _repaired(lines: list[PieceLine], limit: int) -> Parsed | None:
    """Return the tree after at most so many repairs."""
    for _ in range(limit):
        tree = _parse([line.text for line in lines])
        if isinstance(tree, ast.Module):
            return tree, lines
        if tree is None or not _repair(lines, tree):
            return None
    return None


def _parse_blocks(lines: Sequence[PieceLine]) -> Parsed | None:
    """Parse every statement at the top level apart, and leave out those that are no Python."""
    result: list[PieceLine] = []
    kept = 0
    for block in _blocks(lines):
        parsed = _repaired(list(block), _MAX_REPAIRS) if len(block) <= _MAX_BLOCK_LINES else None
        kept += parsed is not None and bool(parsed[0].body)
        result += parsed[1] if parsed is not None else [replace(line, text="") for line in block]
    tree = _parse([line.text for line in result]) if kept else None
    return (tree, result) if isinstance(tree, ast.Module) else None


def _blocks(lines: Sequence[PieceLine]) -> Iterator[Sequence[PieceLine]]:
    start = 0
    for row in range(1, len(lines)):
        is_decorated = lines[row - 1].text.startswith("@")
        if _TOP_LEVEL.match(lines[row].text) and not is_decorated:
            yield lines[start:row]
            start = row
    yield lines[start:]


def _parse(texts: Sequence[str]) -> ast.Module | SyntaxError | None:
    """Return the tree or the error; None if the parser gives up on nesting that is too deep."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about escapes in the strings of others
            return ast.parse("\n".join(texts) + "\n")
    except SyntaxError as error:
        return error
    except (ValueError, RecursionError, MemoryError):
        return None


def _plain(lines: Sequence[PieceLine]) -> list[PieceLine]:
    """Replace characters of word processors, and tabs at the start of lines where others have spaces."""
    has_spaces = any(line.text.startswith(" ") for line in lines)
    plain = []
    for line in lines:
        text, column = line.text, line.column
        if not text.isascii() or "\0" in text:
            text = text.translate(_CHARACTERS)
        width = _width(text)
        if has_spaces and "\t" in text[:width]:
            indent = text[:width].expandtabs(4)
            text, column = indent + text[width:], column - len(indent) + width
        plain.append(PieceLine(text, line.line, column))
    return plain


def _without_prompts(lines: Sequence[PieceLine]) -> list[PieceLine]:
    """Remove the prompts of a session in a terminal or notebook; lines of output become empty."""
    if not any(_SESSION.match(line.text) for line in lines):
        return list(lines)
    stripped = []
    for line in lines:
        match = _PROMPT.match(line.text)
        width = match.end() if match else 0
        stripped.append(PieceLine(line.text[width:] if match else "", line.line, line.column + width))
    return stripped


def _without_magics(lines: Sequence[PieceLine]) -> list[PieceLine]:
    plain = []
    is_continued = False
    for line in lines:
        text = "" if is_continued else _without_magic(line.text)
        # A command may go on in the next lines.
        is_continued = (is_continued or text != line.text) and line.text.rstrip().endswith("\\")
        plain.append(replace(line, text=text))
    return plain


def _without_magic(text: str) -> str:
    if match := _MAGIC.match(text):
        return f"{match[1]}pass"
    return _ASSIGNED_MAGIC.sub(r"\1None", text) if "=" in text and ("!" in text or "%" in text) else text


def _dedent(lines: Sequence[PieceLine]) -> list[PieceLine]:
    """Remove the indentation that all lines share; comments may have less."""
    widths = [
        len(line.text) - len(line.text.lstrip())
        for line in lines
        if line.text.strip() and not line.text.lstrip().startswith("#")
    ]
    width = min(widths, default=0)
    if width == 0:
        return list(lines)
    return [
        PieceLine(line.text[width:], line.line, line.column + width)
        if not line.text[:width].strip()
        else replace(line, text="")
        for line in lines
    ]


def _repair(lines: list[PieceLine], error: SyntaxError) -> bool:
    """Change the lines so that the error disappears; False if nothing is left to try."""
    row = min(max((error.lineno or 1) - 1, 0), len(lines) - 1)
    if row < 0:
        return False
    message = error.msg or ""
    if message.startswith("expected an indented block") and (owner := _BLOCK_OWNER.search(message)):
        return _fill_block(lines, int(owner[1]) - 1, row)
    if message == "unexpected indent":
        return _shift_block(lines, row)
    if message.startswith("unindent does not match"):
        return _align(lines, row)
    if message.startswith("expected 'except'"):
        return _replace_try(lines, row)
    return _complete(lines, row, message) or _adopt(lines, row) or _blank(lines, row)


def _complete(lines: list[PieceLine], row: int, message: str) -> bool:
    """Add a missing colon, replace the dots of a shortened argument list, or update an `except` of Python 2."""
    text = lines[row].text
    header = _without_comment(text)
    if message == "expected ':'" and header and not header.endswith(":"):
        _set(lines, row, f"{header}:")
        return True
    if "..." in text and "**_" not in text and _replace_dots(lines, row, message):
        return True
    if _OLD_EXCEPT.match(text):
        _set(lines, row, _OLD_EXCEPT.sub(r"\1 as \2:", text))
        return True
    return False


def _adopt(lines: list[PieceLine], row: int) -> bool:
    """Turn an `else` or `except` without its beginning into a block of its own."""
    for pattern, replacement in _ORPHANS:
        if pattern.match(lines[row].text):
            _set(lines, row, pattern.sub(replacement, lines[row].text))
            return True
    return False


def _replace_dots(lines: list[PieceLine], row: int, message: str) -> bool:
    """Turn the `...` of a shortened argument list into `**_`, which is as long."""
    text = lines[row].text
    is_call = message.startswith("positional argument follows keyword")
    if not is_call and not text.lstrip().startswith(("def ", "async def ")):
        return False
    head, _, tail = text.rpartition("...")
    _set(lines, row, f"{head}**_{tail}")
    return True


def _without_comment(text: str) -> str:
    return re.sub(r"\s*#.*$", "", text).rstrip()


def _set(lines: list[PieceLine], row: int, text: str) -> None:
    lines[row] = replace(lines[row], text=text)


def _width(text: str) -> int:
    return len(text) - len(text.lstrip())


def _fill_block(lines: list[PieceLine], owner: int, row: int) -> bool:
    """Give a block that has only comments a `pass`."""
    width = _width(lines[owner].text)
    for middle in range(owner + 1, row + 1):
        text = lines[middle].text
        if not text.strip() or text.lstrip().startswith("#"):
            _set(lines, middle, " " * (width + 4) + "pass")
            return True
    for header in range(max(row - 1, owner), owner - 1, -1):
        text = _without_comment(lines[header].text)
        if text.endswith(":"):
            _set(lines, header, f"{text} pass")
            return True
    return _blank(lines, row)


def _shift_block(lines: list[PieceLine], row: int) -> bool:
    """Move a block that is indented too far to the indentation of the line before it."""
    width = _width(lines[row].text)
    before = next((line.text for line in reversed(lines[:row]) if line.text.strip()), "")
    shift = width - _width(before)
    if shift <= 0:
        return _blank(lines, row)
    for number in range(row, len(lines)):
        line = lines[number]
        if line.text.strip() and _width(line.text) < width:
            break
        lines[number] = PieceLine(line.text[shift:], line.line, line.column + shift)
    return True


def _align(lines: list[PieceLine], row: int) -> bool:
    """Give a line the nearest smaller indentation of the lines before it."""
    line = lines[row]
    width = _width(line.text)
    widths = {_width(other.text) for other in lines[:row] if other.text.strip()}
    smaller = max((other for other in widths if other < width), default=0)
    shift = width - smaller
    lines[row] = PieceLine(line.text[shift:], line.line, line.column + shift)
    return shift > 0


def _replace_try(lines: list[PieceLine], row: int) -> bool:
    """Turn a `try:` without handler into a plain block."""
    for number in range(row, -1, -1):
        if lines[number].text.strip() == "try:":
            _set(lines, number, lines[number].text.replace("try:", "if 1:"))
            return True
    return _blank(lines, row)


def _blank(lines: list[PieceLine], row: int) -> bool:
    """Replace a line that is no Python by `pass`, or the one before it if that was done already."""
    for number in (row, row - 1):
        text = lines[number].text if number >= 0 else ""
        if text.strip() and text.strip() != "pass":
            _set(lines, number, " " * _width(text) + "pass")
            return True
    return False
