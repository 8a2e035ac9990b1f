"""Notebooks: the source of their cells, and the file with changed cells."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ...errors import InvalidFile
from ._lines import split_lines


def read_cells(text: str) -> dict[int, tuple[str, str]]:
    """Return type ("code", "markdown", …) and source of each cell by its index.

    Raises:
        InvalidFile: It is no notebook.
    """
    cells = _cells(_load(text))
    return {
        index: (str(cell.get("cell_type")), _source(cell)) for index, cell in enumerate(cells) if isinstance(cell, dict)
    }


def replace_cells(text: str, sources: Mapping[int, str]) -> str:
    """Return a notebook's file with other sources in some cells; its format stays as it is."""
    content = _load(text)
    form = _form(text, content)
    cells = _cells(content)
    for index, source in sources.items():
        cell = cells[index]
        key = _source_key(cell)
        cell[key] = split_lines(source) if isinstance(cell.get(key), list) else source
    return _dump(content, form) + text[len(text.rstrip()) :]


def _cells(content: Mapping[str, Any]) -> list[Any]:
    """Return the cells; those of format 3 are in worksheets."""
    cells = content.get("cells")
    if cells is None and isinstance(content.get("worksheets"), list):
        sheets = [sheet.get("cells") for sheet in content["worksheets"] if isinstance(sheet, dict)]
        cells = [cell for sheet in sheets if isinstance(sheet, list) for cell in sheet]
    if not isinstance(cells, list):
        raise InvalidFile("it is no notebook: it has no cells", "open and save it with Jupyter")
    return cells


def _load(text: str) -> dict[str, Any]:
    if not text.strip():
        raise InvalidFile("it is empty", "open and save it with Jupyter")
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidFile("it is no notebook: its JSON is damaged", "open and save it with Jupyter") from None
    if not isinstance(content, dict):
        raise InvalidFile("it is no notebook", "name notebooks, Python files, Markdown or shell scripts")
    return content


def _source(cell: Mapping[str, Any]) -> str:
    source = cell.get(_source_key(cell), "")
    if isinstance(source, list):
        return "".join(line for line in source if isinstance(line, str))
    return source if isinstance(source, str) else ""


def _source_key(cell: Mapping[str, Any]) -> str:
    """Return where a cell has its source; code of format 3 is its input."""
    return "input" if "source" not in cell and "input" in cell else "source"


def _form(text: str, content: Mapping[str, Any]) -> tuple[int | None, bool]:
    """Return indentation and escaping of a JSON file: those that give the same text again, if there are any."""
    body = text.strip()
    likely = (_indent(text), body.isascii())
    for form in (likely, (likely[0], not likely[1])):
        if _dump(content, form) == body:
            return form
    return likely


def _dump(content: Mapping[str, Any], form: tuple[int | None, bool]) -> str:
    indent, is_escaped = form
    return json.dumps(content, indent=indent, ensure_ascii=is_escaped)


def _indent(text: str) -> int | None:
    """Return the indentation of a JSON file, None if it has only one line."""
    lines = text.split("\n", 2)
    if len(lines) == 1 or not lines[1].startswith(" "):
        return None
    return len(lines[1]) - len(lines[1].lstrip(" "))
