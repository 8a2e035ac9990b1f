"""Shell commands in a document: lines of scripts and fences, `!` lines of notebooks, strings that Python runs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from .._piece import Language, Piece, PieceLine
from .._problem import Span
from ..analysis import Code
from ._command_line import CommandLine, CommandPart

_PROMPT = re.compile(r"^\s*(?:\$|%|>|PS [^>]*>|C:\\[^>]*>|\([\w.-]+\) ?\$|[\w.-]+@[\w.-]+:[^$#]*[$#])\s+(?=\S)")
_NOTEBOOK = re.compile(r"^\s*(?:[\w.,\s]+=\s*)?(?:!{1,2}|%{1,2})\s*(?=\S)")
_RUNNERS = {
    "os.system", "os.popen", "subprocess.run", "subprocess.call", "subprocess.check_call", "subprocess.check_output",
    "subprocess.Popen", "subprocess.getoutput", "subprocess.getstatusoutput", "get_ipython.system",
    "get_ipython.getoutput", "shlex.split", "pexpect.run", "pexpect.spawn", "commands.getoutput",
    "asyncio.create_subprocess_shell",
}  # fmt: skip
_ARGUMENT_RUNNERS = {"asyncio.create_subprocess_exec", "os.execlp", "os.execl"}  # their arguments are the words
_GET_IPYTHON = {"get_ipython", "IPython.get_ipython", "IPython.core.getipython.get_ipython"}
_IPYTHON = {"system", "getoutput", "system_raw", "system_piped"}
# Strings that hold a command, whatever runs them.
_COMMAND_START = re.compile(r"\s*!?\s*(?:sudo\s+)?(?:nvidia-smi|yolo|python3?|torchrun)(?:\s|$)")
_PROGRAMS = {"nvidia-smi", "yolo", "python", "python3", "torchrun", "sudo"}
_UNKNOWN = "{}"  # stands for a value that the code doesn't show


def piece_commands(piece: Piece) -> Iterator[CommandLine]:
    """Yield the commands of a shell piece, or the `!` and `%` lines of a Python piece."""
    lines = piece.lines
    number = 0
    while number < len(lines):
        first = number
        is_command = piece.language is Language.SHELL or _NOTEBOOK.match(lines[first].text) is not None
        while is_command and lines[number].text.rstrip().endswith(("\\", "`", "^")) and number + 1 < len(lines):
            if not _continues(lines[number].text, piece.language):
                break
            number += 1
        if is_command and (command := _command(piece, lines[first : number + 1])) is not None:
            yield command
        number += 1


def _continues(text: str, language: Language) -> bool:
    """Return True if a line goes on in the next one: with a backslash, in PowerShell ` and in cmd ^ after a space."""
    text = text.rstrip()
    return text.endswith("\\") or (language is Language.SHELL and text.endswith((" `", " ^")))


def _command(piece: Piece, lines: Sequence[PieceLine]) -> CommandLine | None:
    pattern = _PROMPT if piece.language is Language.SHELL else _NOTEBOOK
    match = pattern.match(lines[0].text)
    texts: list[str] = []
    parts: list[CommandPart] = []
    length = 0
    for number, line in enumerate(lines):
        start = match.end() if match and number == 0 else len(line.text) - len(line.text.lstrip())
        text = line.text[start:].rstrip()
        if number + 1 < len(lines):
            text = text[:-1].rstrip()
        parts.append(CommandPart(length, length + len(text), line.line, line.column + start))
        texts.append(text)
        length += len(text) + 1
    if not any(texts) or (texts[0].startswith("#") and piece.language is Language.SHELL and match is None):
        return None
    last = lines[-1]
    span = Span(piece.cell, lines[0].line, parts[0].column, last.line, last.column + len(last.text))
    return CommandLine(" ".join(texts), span, tuple(parts), is_escaped=piece.language is Language.PYTHON)


def string_commands(code: Code) -> Iterator[CommandLine]:
    """Yield the commands in strings that `os.system` or `subprocess` run, or that start with a known program."""
    seen: set[ast.AST] = set()
    for call in code.nodes(ast.Call):
        if call.args and code.call_name(call) in _ARGUMENT_RUNNERS:
            words = ast.copy_location(ast.List(elts=call.args, ctx=ast.Load()), call)
            if (command := _string_command(code, words)) is not None:
                yield command
        elif call.args and is_runner(code, call):
            for value in code.values(call.args[0]):
                seen.add(value)
                if (command := _string_command(code, value)) is not None:
                    yield command
    for value in (*code.nodes(ast.Constant), *code.nodes(ast.JoinedStr), *code.nodes(ast.List), *code.nodes(ast.Tuple)):
        is_part = isinstance(code.parent(value), (ast.JoinedStr, ast.List, ast.Tuple, ast.BinOp))
        is_command = value not in seen and not is_part and _holds_command(value)
        if is_command and (command := _string_command(code, value)) is not None:
            yield command


def is_runner(code: Code, call: ast.Call) -> bool:
    """Return True if a call runs its first argument as a command."""
    if code.call_name(call) in _RUNNERS:
        return True
    function = call.func
    if not isinstance(function, ast.Attribute) or function.attr not in _IPYTHON:
        return False
    return any(code.call_name(value) in _GET_IPYTHON for value in code.values(function.value))


def _holds_command(node: ast.expr) -> bool:
    if isinstance(node, (ast.List, ast.Tuple)):
        first = node.elts[0] if node.elts else None
        return isinstance(first, ast.Constant) and first.value in _PROGRAMS
    if isinstance(node, ast.JoinedStr):
        node = node.values[0] if node.values and isinstance(node.values[0], ast.Constant) else node
    value = node.value if isinstance(node, ast.Constant) else None
    return isinstance(value, str) and _COMMAND_START.match(value) is not None


def _string_command(code: Code, node: ast.expr) -> CommandLine | None:
    texts, parts, length = [], [], 0
    elements = node.elts if isinstance(node, (ast.List, ast.Tuple)) else [node]
    for element in elements:
        text = command_text(code, element)
        if text is None and element is node:
            return None
        text = _UNKNOWN if text is None else text
        if " " in text and element is not node and "'" not in text:
            text = f"'{text}'"  # an element of a list is one word
            part = _part(code, element, text[1:-1], length + 1)
        else:
            part = _part(code, element, text, length)
        parts += [part] if part else []
        texts.append(text)
        length += len(text) + 1
    return CommandLine(" ".join(texts), code.span(node), tuple(parts), is_string=True)


def _part(code: Code, node: ast.expr, text: str, start: int) -> CommandPart | None:
    """Return the place of a string whose characters are written as they are between its quotes."""
    if not isinstance(node, ast.Constant):
        return None
    span = code.span(node)
    extra = span.end_column - span.column - len(text)
    if span.line != span.end_line or extra not in {2, 3} or "\n" in text or "\\" in text:
        return None
    return CommandPart(start, start + len(text), span.line, span.column + extra - 1)


def command_text(code: Code, node: ast.expr) -> str | None:
    """Return the text of a string, f-string, sum or `join` of strings; values that are unknown become `{}`."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(_value_text(code, part) for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = command_text(code, node.left), command_text(code, node.right)
        return None if left is None and right is None else (left or _UNKNOWN) + (right or _UNKNOWN)
    if isinstance(node, (ast.List, ast.Tuple)):
        return " ".join(command_text(code, element) or _UNKNOWN for element in node.elts)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr in {"split", "format", "strip"}:
            return command_text(code, node.func.value)
        return _joined(code, node, node.func)
    return None


def _joined(code: Code, call: ast.Call, function: ast.Attribute) -> str | None:
    """Return the text of `",".join(names)`, if the code shows all names."""
    separator = code.constant(function.value)
    if function.attr != "join" or not isinstance(separator, str) or len(call.args) != 1:
        return None
    values = code.values(call.args[0])
    if len(values) != 1 or not isinstance(values[0], (ast.List, ast.Tuple)):
        return None
    names = [code.constant(element) for element in values[0].elts]
    return separator.join(map(str, names)) if all(isinstance(name, str) for name in names) else None


def _value_text(code: Code, part: ast.expr) -> str:
    if isinstance(part, ast.Constant):
        return str(part.value)
    value = part.value if isinstance(part, ast.FormattedValue) else part
    constant = code.constant(value)
    if isinstance(constant, str):
        return constant
    text = command_text(code, value) if isinstance(value, ast.Call) else None
    return _UNKNOWN if text is None else text
