"""Rule `nested-shell-escape`: a notebook's `!` inside a string that a shell runs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ..._problem import Edit, Problem, Span
from ..._rule import Rule, RuleFamily
from ...analysis import Code
from ...sources import CommandLine, Document, is_runner

# A `!` right before a program; `! cmd` is the shell's negation and `!=` a comparison.
_ESCAPE = re.compile(r"\s*!+(?=[A-Za-z./~$({])")
_QUOTED_ESCAPE = re.compile(r"[A-Za-z]{0,2}(?:\"\"\"|'''|\"|')\s*(!+)")
_MAX_STRING_CHARS = 40
_EXPANDED = re.compile(r"^\s*(?:\{\s*(\w+)\s*\}|\$(\w+))")


def _check(document: Document) -> Iterator[Problem]:
    code = document.code
    expanded = {name: command for command in document.commands if command.is_escaped if (name := _expanded(command))}
    for call in code.nodes(ast.Call):
        if call.args and is_runner(code, call):
            for value in _commands(code, call.args[0]):
                if (string := _escaped(value)) is not None:
                    yield _problem(
                        document, string, code.source(call.func), is_only_use=_is_only_use(code, call, value)
                    )
    for name in expanded:
        for assignment in code.assignments(name, code.tree):
            string = _escaped(assignment.value) if assignment.value is not None else None
            if string is not None:
                yield _problem(document, string, f"!{{{name}}}", is_only_use=not _loads(code, name))
    yield from _check_quoted(document)


def _commands(code: Code, node: ast.expr) -> Iterator[ast.expr]:
    """Yield what a runner's argument may be: its values, the elements of a loop's list, or the arguments of calls."""
    yield from code.values(node)
    for assignment in code.assignments(code.name(node) or "", node):
        if assignment.kind == "for" and assignment.value is not None:
            for value in code.values(assignment.value):
                yield from value.elts if isinstance(value, (ast.List, ast.Tuple)) else ()
        elif assignment.kind == "argument" and isinstance(assignment.statement, ast.FunctionDef):
            yield from _arguments(code, assignment.statement, assignment.name)


def _arguments(code: Code, function: ast.FunctionDef, name: str) -> Iterator[ast.expr]:
    """Yield the values that calls in the document give to a function's argument."""
    names = [argument.arg for argument in function.args.args]
    position = names.index(name) if name in names else len(names)
    for call in code.nodes(ast.Call):
        if isinstance(call.func, ast.Name) and call.func.id == function.name and len(call.args) > position:
            yield call.args[position]


def _expanded(command: CommandLine) -> str | None:
    """Return the variable that a line such as `!{cmd}` runs."""
    match = _EXPANDED.match(command.text)
    return (match[1] or match[2]) if match else None


def _escaped(node: ast.expr) -> ast.expr | None:
    """Return the string at the start of a command, if it starts with `!`."""
    string = node
    while True:
        if isinstance(string, ast.BinOp) and isinstance(string.op, (ast.Add, ast.Mod)):
            string = string.left
        elif isinstance(string, ast.Call) and isinstance(string.func, ast.Attribute):
            string = string.func.value
        elif isinstance(string, (ast.List, ast.Tuple)) and string.elts:
            string = string.elts[0]
        else:
            break
    first = string.values[0] if isinstance(string, ast.JoinedStr) and string.values else string
    text = first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else ""
    # A name in braces follows: f"!{python} train.py".
    text += "x" if isinstance(string, ast.JoinedStr) and text.endswith("!") else ""
    return string if _ESCAPE.match(text) else None


def _is_only_use(code: Code, call: ast.Call, value: ast.expr) -> bool:
    """Return True if nothing but this call uses the string."""
    if value is call.args[0]:
        return True
    name = code.name(call.args[0])
    is_assigned = any(assignment.value is value for assignment in code.assignments(name or "", call))
    return name is not None and is_assigned and len(_loads(code, name)) == 1


def _loads(code: Code, name: str) -> list[ast.Name]:
    return [node for node in code.nodes(ast.Name) if node.id == name and isinstance(node.ctx, ast.Load)]


def _problem(document: Document, string: ast.expr, runner: str, *, is_only_use: bool) -> Problem:
    span = document.code.span(string)
    text = document.code.source(string)
    start = f"{text[:_MAX_STRING_CHARS]}…" if len(text) > _MAX_STRING_CHARS else text
    message = f"the shell that {runner} starts doesn't know the `!` of notebooks in {start}: write it without the `!`"
    edits = _edits(document, span) if is_only_use else ()
    return Problem(span, message, edits)


def _edits(document: Document, span: Span) -> tuple[Edit, ...]:
    """Return the edit that removes the `!`, found in the source of the string."""
    text = next(line.text for line in document.lines if (line.span.cell, line.span.line) == (span.cell, span.line))
    match = _QUOTED_ESCAPE.match(text, span.column)
    if match is None:
        return ()
    return (Edit(Span(span.cell, span.line, match.start(1), span.line, match.end(1)), ""),)


def _check_quoted(document: Document) -> Iterator[Problem]:
    """Check commands in quotes: `!bash -c "!nvidia-smi"`."""
    for command in document.commands:
        if not command.is_escaped:
            continue
        for words in command.commands:
            for number, word in enumerate(words):
                if number and words[number - 1].text in {"-c", "-lc", "eval"} and _ESCAPE.match(word.text):
                    message = "the shell doesn't know the `!` of notebooks inside quotes: write the command without it"
                    yield Problem(command.span_of(word), message)


NESTED_SHELL_ESCAPE = Rule(
    "nested-shell-escape",
    RuleFamily.COMMANDS,
    "A notebook's ! inside a string that a shell runs",
    _check,
    triggers=("!",),
    is_fixable=True,
)
