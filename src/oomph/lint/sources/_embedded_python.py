"""Python in shell scripts: `python - <<'EOF'` and `python -c "…"`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .._piece import Language, Piece, PieceLine

_HEREDOC = re.compile(r"(?<!<)<<-?\s*(['\"]?)([A-Za-z_]\w*)\1")
_PYTHON = re.compile(r"(?:^|[\s;|&(/])(?:i?python[\d.]*|\$\{?PYTHON\}?)\b[^|;]*$")
_PYTHON_FILE = re.compile(r">\s*['\"]?[\w./${}-]+\.py\b")
_SHELL = re.compile(r"(?:^|[\s;|&(/])(?:bash|sh|zsh|ssh|sbatch|qsub|bsub)\b[^|;]*$")
_SHELL_FILE = re.compile(r">\s*['\"]?[\w./${}-]+\.(?:sh|bash|slurm|sbatch|job)\b")
_OPTION = re.compile(r"(?:^|[\s;|&(/])i?python[\d.]*(?:\s+-(?!c\b)\w+(?:\s+[a-z]\w*)?)*\s+-c\s+(['\"])")


def split_shell(piece: Piece) -> tuple[Piece, list[Piece]]:
    """Return a shell piece without its embedded texts, and the Python code in them."""
    commands: list[PieceLine] = []
    embedded: list[Piece] = []
    lines = piece.lines
    row = 0
    while row < len(lines):
        line = lines[row]
        row += 1
        if match := _HEREDOC.search(line.text):
            end = _end_of_heredoc(lines, row, match[2])
            is_python = _PYTHON.search(line.text[: match.start()]) or _PYTHON_FILE.search(line.text)
            if is_python:
                embedded.append(Piece(Language.PYTHON, tuple(lines[row:end]), piece.cell))
            commands.append(line)
            if _SHELL.search(line.text[: match.start()]) or _SHELL_FILE.search(line.text):
                commands += lines[row:end]
            row = end + 1
        elif match := _OPTION.search(line.text):
            code, head, row = _quoted(lines, row - 1, match.end(), match[1])
            embedded += [Piece(Language.PYTHON, tuple(code), piece.cell)] if code else []
            commands += head
        else:
            commands.append(line)
    return Piece(Language.SHELL, tuple(commands), piece.cell), embedded


def _end_of_heredoc(lines: Sequence[PieceLine], start: int, word: str) -> int:
    return next((row for row in range(start, len(lines)) if lines[row].text.strip() == word), len(lines))


def _quoted(
    lines: Sequence[PieceLine], row: int, column: int, quote: str
) -> tuple[list[PieceLine], list[PieceLine], int]:
    """Return the lines of a quoted text, the command in front of it, and the row after it.

    A text with escapes or variables is no plain Python: it gives no lines. One that is never closed is no quoted text.
    """
    first = lines[row]
    code: list[PieceLine] = []
    for number in range(row, len(lines)):
        line = lines[number]
        start = column if number == row else 0
        end = _find_quote(line.text, quote, start)
        code.append(PieceLine(line.text[start : end if end >= 0 else None], line.line, line.column + start))
        if end >= 0:
            is_changed = quote == '"' and any(
                "\\" in part.text or "$" in part.text or "`" in part.text for part in code
            )
            head = first if number == row else PieceLine(first.text[: column - 1], first.line, first.column)
            return ([] if is_changed else code), [head], number + 1
    return [], [first], row + 1


def _find_quote(text: str, quote: str, start: int) -> int:
    if quote == "'":
        return text.find(quote, start)
    position = start
    while position < len(text):
        if text[position] == "\\":
            position += 1
        elif text[position] == quote:
            return position
        position += 1
    return -1
