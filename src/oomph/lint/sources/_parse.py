"""Reading of a document: its pieces of code, commands and lines."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence

from .._piece import Language, Piece, PieceLine
from .._problem import Span
from ..analysis import build_code, is_python
from ._command_line import CommandLine
from ._commands import piece_commands, string_commands
from ._document import Document, DocumentKind, Line
from ._embedded_python import split_shell
from ._lines import split_lines
from ._markdown import markdown_pieces
from ._notebook import read_cells

_CELL_MAGIC = re.compile(r"^\s*%%(\w+)(?:.*?(\.\w+)\s*$)?")
_FILE_MAGICS = {"writefile", "file"}
_FILE_LANGUAGES = {".py": Language.PYTHON, ".sh": Language.SHELL, ".bash": Language.SHELL}
_BYTE_ORDER_MARK = "\ufeff"
_SHELL_MAGICS = {"bash", "sh", "script", "shell", "system"}
# Magics after which the rest of the cell is Python all the same.
_PYTHON_MAGICS = {"time", "timeit", "capture", "prun", "python", "python3", "memit", "mprun"}


def parse_document(path: str, text: str, kind: DocumentKind, ram_budget: int | None = None) -> Document:
    """Return a document with its code, commands and lines.

    Raises:
        InvalidFile: A notebook is damaged.
    """
    sources, pieces = _read(text, kind)
    code, _ = build_code([piece for piece in pieces if piece.language is Language.PYTHON])
    commands: list[CommandLine] = []
    for piece in pieces:
        if piece.language is Language.SHELL or kind is not DocumentKind.PYTHON or _is_exported(piece):
            commands += piece_commands(piece)
    commands += string_commands(code)
    lines = tuple(_all_lines(sources))
    joined = text if kind is not DocumentKind.NOTEBOOK else "\n".join(sources.values())
    return Document(path, kind, joined, code, tuple(commands), lines, sources, ram_budget)


def which_parse(text: str, kind: DocumentKind) -> list[bool]:
    """Return for each piece of Python in a text, in order, True if it needs no repair.

    Raises:
        InvalidFile: A notebook is damaged.
    """
    _, pieces = _read(text, kind)
    return [is_python(piece.lines) for piece in pieces if piece.language is Language.PYTHON]


def _read(text: str, kind: DocumentKind) -> tuple[dict[int | None, str], list[Piece]]:
    """Return the text of each cell, or of the whole file under None, and the pieces of code."""
    if kind is not DocumentKind.NOTEBOOK:
        return {None: text}, list(_with_embedded(_text_pieces(text, kind)))
    cells = read_cells(text)
    sources: dict[int | None, str] = {index: source for index, (_, source) in cells.items()}
    return sources, list(_with_embedded(_notebook_pieces(cells)))


def syntax_error(name: str, text: str, kind: DocumentKind) -> str | None:
    """Return why a Python file is none; None if it is one, or the export of a notebook.

    Raises:
        InvalidFile: A notebook is damaged.
    """
    if kind is DocumentKind.NOTEBOOK:
        read_cells(text)
    if kind is not DocumentKind.PYTHON or not name.endswith(".py"):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about escapes in strings
            ast.parse(text.removeprefix(_BYTE_ORDER_MARK))
    except SyntaxError as error:
        if re.search(r"^\s*[!%]\w", text, re.MULTILINE):
            return None
        return f"line {error.lineno} is no Python ({error.msg})"
    except (ValueError, RecursionError, MemoryError):
        return None
    return None


def _with_embedded(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """Yield the pieces, and after each shell script the Python code in it."""
    for piece in pieces:
        if piece.language is Language.SHELL:
            commands, embedded = split_shell(piece)
            yield commands
            yield from embedded
        else:
            yield piece


def _text_pieces(text: str, kind: DocumentKind) -> Iterator[Piece]:
    lines = _texts(text)
    if kind is DocumentKind.MARKDOWN:
        yield from markdown_pieces(lines)
    else:
        language = Language.SHELL if kind is DocumentKind.SHELL else Language.PYTHON
        yield _piece(language, lines, None)


def _notebook_pieces(cells: Mapping[int, tuple[str, str]]) -> Iterator[Piece]:
    for index, (cell_type, source) in cells.items():
        lines = _texts(source)
        if cell_type == "markdown":
            for piece in markdown_pieces(lines):
                yield Piece(piece.language, piece.lines, index)
        elif cell_type == "code" and (language := _cell_language(lines)) is not None:
            yield _piece(language, lines, index)


def _cell_language(lines: Sequence[str]) -> Language | None:
    """Return the language that the first line of a cell selects; None for another language."""
    match = _CELL_MAGIC.match(next((line for line in lines if line.strip()), ""))
    if match is None or match[1] in _PYTHON_MAGICS:
        return Language.PYTHON
    if match[1] in _FILE_MAGICS:
        return _FILE_LANGUAGES.get((match[2] or "").lower())
    return Language.SHELL if match[1] in _SHELL_MAGICS else None


def _is_exported(piece: Piece) -> bool:
    """Return True if a Python file is a notebook's export, with `!` lines that no Python file can have."""
    if not any(line.text.startswith("!") for line in piece.lines):
        return False
    try:
        ast.parse("\n".join(line.text for line in piece.lines))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return True
    return False


def _piece(language: Language, lines: Sequence[str], cell: int | None) -> Piece:
    pieces = [PieceLine(line, number) for number, line in enumerate(lines, 1)]
    if lines and lines[0].startswith(_BYTE_ORDER_MARK):
        pieces[0] = PieceLine(lines[0][1:], 1, 1)
    return Piece(language, tuple(pieces), cell)


def _texts(text: str) -> list[str]:
    return [line.rstrip("\r\n") for line in split_lines(text)]


def _all_lines(sources: Mapping[int | None, str]) -> Iterator[Line]:
    for cell, source in sources.items():
        for number, line in enumerate(_texts(source), 1):
            yield Line(line, Span(cell, number, 0, number, len(line)))
