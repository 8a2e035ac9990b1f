"""Files that are checked: found in folders by their ending, read up to a size."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from ...errors import InvalidFile, MissingFile, shorten
from ...units import MIB, format_size
from ._document import DocumentKind

_KINDS = {
    ".py": DocumentKind.PYTHON,
    ".pyw": DocumentKind.PYTHON,
    ".ipynb": DocumentKind.NOTEBOOK,
    ".md": DocumentKind.MARKDOWN,
    ".markdown": DocumentKind.MARKDOWN,
    ".sh": DocumentKind.SHELL,
    ".bash": DocumentKind.SHELL,
    ".zsh": DocumentKind.SHELL,
    ".sbatch": DocumentKind.SHELL,
    ".slurm": DocumentKind.SHELL,
}
FILE_NAMES = tuple(_KINDS)
# Folders with code of others, or with copies of code.
_SKIPPED_FOLDERS = {"__pycache__", "node_modules", "site-packages", "venv", "env", "build", "dist"}
# Code is never this large; outputs in notebooks may be.
_MAX_BYTES = {DocumentKind.NOTEBOOK: 32 * MIB}
_MAX_CODE_BYTES = 4 * MIB
_FENCE = re.compile(r"^ {0,3}(?:```|~~~)", re.MULTILINE)
_SHELL_START = re.compile(r"\A#!.*\b(?:ba|z|da|k)?sh\b|\A\s*(?:\$ |(?:set -|export |sudo |nvidia-smi|yolo )\S)")


def find_files(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield files and, of folders, all files with a known ending, in order.

    Raises:
        MissingFile: A path doesn't exist.
    """
    for path in paths:
        if path.is_dir():
            yield from _walk(path)
        elif path.exists():
            yield path
        else:
            raise MissingFile(f"there is no file or folder {shorten(str(path))!r}", "check the path")


def _walk(folder: Path) -> Iterator[Path]:
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not (name.startswith(".") or name in _SKIPPED_FOLDERS))
        for name in sorted(names):
            if Path(name).suffix.lower() in _KINDS:
                yield Path(root, name)


def read_source(path: Path) -> str:
    """Return the text of a file; invalid bytes are replaced.

    Raises:
        InvalidFile: It can't be read, is binary or is too large.
    """
    kind = _KINDS.get(path.suffix.lower())
    limit = _MAX_BYTES.get(kind, _MAX_CODE_BYTES) if kind else _MAX_CODE_BYTES
    try:
        if not path.is_file():
            raise InvalidFile("it is no regular file", "name files or folders")
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise InvalidFile(f"it can't be read ({error.strerror})", "check its permissions") from None
    return _decode(data, limit)


def read_pipe(stream: BinaryIO) -> str:
    """Return the text of a pipe.

    Raises:
        InvalidFile: It is binary or too large.
    """
    limit = max(_MAX_BYTES.values())
    return _decode(stream.read(limit + 1), limit)


def _decode(data: bytes, limit: int) -> str:
    if len(data) > limit:
        raise InvalidFile(f"it is larger than {format_size(limit)}", "check the code in it apart")
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", "replace")
    if b"\0" in data:
        raise InvalidFile("it is a binary file", "name source files")
    return data.decode("utf-8-sig", "replace")


def document_kind(name: str, text: str) -> DocumentKind:
    """Return the kind by the name's ending, or by the content of a pipe."""
    kind = _KINDS.get(Path(name).suffix.lower())
    if kind is not None:
        return kind
    if text.lstrip().startswith("{") and _is_notebook(text):
        return DocumentKind.NOTEBOOK
    if _FENCE.search(text):
        return DocumentKind.MARKDOWN
    return DocumentKind.SHELL if _SHELL_START.match(text) else DocumentKind.PYTHON


def _is_notebook(text: str) -> bool:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(content, dict) and any(isinstance(content.get(key), list) for key in ("cells", "worksheets"))
