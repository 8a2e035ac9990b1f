"""Rule `workers-without-main-guard`: a script starts workers while it is imported."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..._problem import Problem
from ..._rule import Rule, RuleFamily
from ...analysis import Code, DataLoaderCall, Function, integer, walk
from ...sources import Document, DocumentKind


def _check(document: Document) -> Iterator[Problem]:
    if document.kind is DocumentKind.NOTEBOOK or _starts_by_fork(document):
        return
    code = document.code
    starting = list(_statements_at_import(code))
    for loader in document.loaders.all:
        if not _has_workers(code, loader) or "multiprocessing_context" in loader.settings:
            continue
        if document.kind is DocumentKind.MARKDOWN and not _is_whole_script(code, loader.call):
            continue
        if _is_iterated_at_import(document, loader, starting):
            workers = code.source(loader.settings["num_workers"])
            message = (
                f"this loader with num_workers={workers} runs at the top level of the script, which every worker "
                'imports again where processes are spawned: put it under `if __name__ == "__main__":`'
            )
            yield Problem(code.span(loader.call), message)


def _has_workers(code: Code, loader: DataLoaderCall) -> bool:
    workers = loader.settings.get("num_workers")
    if workers is None:
        return False
    number = integer(code, workers)
    return number > 0 if number is not None else "cpu_count" in ast.unparse(workers)


def _starts_by_fork(document: Document) -> bool:
    return any(method in document.text for method in ('set_start_method("fork', "set_start_method('fork"))


def _is_whole_script(code: Code, call: ast.Call) -> bool:
    """Return True if a fence is a script: it has imports and a loop at the top level."""
    piece = code.piece(call)
    body = [statement for statement in code.tree.body if code.piece(statement) == piece]
    names = [node for argument in ast.walk(call) if isinstance(node := argument, ast.Name)]
    if not all(code.aliases.get(node.id) or code.assignments(node.id, node) for node in names):
        return False  # the dataset is defined elsewhere
    has_import = any(isinstance(statement, (ast.Import, ast.ImportFrom)) for statement in body)
    return has_import and any(isinstance(statement, (ast.For, ast.While)) for statement in body)


def _statements_at_import(code: Code) -> Iterator[ast.stmt]:
    """Yield the statements that run when the module is imported; those under a guard don't."""
    for statement in code.tree.body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        if isinstance(statement, ast.If) and "__name__" in ast.unparse(statement.test):
            continue
        yield statement


def _is_iterated_at_import(document: Document, loader: DataLoaderCall, starting: list[ast.stmt]) -> bool:
    code = document.code
    if code.function(loader.call) is None and code.class_of(loader.call) is None:
        if not any(code.is_inside(loader.call, statement) for statement in starting):
            return False
        return any(_uses(document, statement, loader) for statement in starting) or any(
            _uses(document, statement, loader)
            for function in _functions_at_import(document, starting)
            for statement in function.body
        )
    return _runs_by_call(document, loader, starting)


def _functions_at_import(document: Document, starting: list[ast.stmt]) -> list[Function]:
    """Return the functions that run when the module is imported, directly or through others."""
    reached: dict[Function, None] = {}
    waiting: list[ast.AST] = list(starting)
    while waiting:
        for node in walk(waiting.pop()):
            function = document.calls.function(node) if isinstance(node, ast.Call) else None
            if function is not None and function not in reached:
                reached[function] = None
                waiting.append(function)
    return list(reached)


def _uses(document: Document, statement: ast.stmt, loader: DataLoaderCall) -> bool:
    """Return True if a statement iterates over a loader or hands it to a function."""
    code = document.code
    for node in walk(statement):
        if isinstance(node, ast.For) and loader in document.loaders.in_loop(node):
            return True
        if isinstance(node, ast.Call) and node is not loader.call and code.call_name(node) not in {"len", "print"}:
            arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
            for argument in arguments:
                if isinstance(argument, ast.Name) and loader in document.loaders.of(argument):
                    return True
    return False


def _runs_by_call(document: Document, loader: DataLoaderCall, starting: list[ast.stmt]) -> bool:
    """Return True if a function that builds the loader is called at the top level, such as a bare `main()`."""
    code, function = document.code, document.code.function(loader.call)
    if function is None or code.class_of(function) is not None:
        return False
    reached = _functions_at_import(document, starting)
    if function not in reached:
        return False
    places = [*starting, *(statement for item in reached for statement in item.body)]
    return any(_uses(document, statement, loader) for statement in places)


WORKERS_WITHOUT_MAIN_GUARD = Rule(
    "workers-without-main-guard",
    RuleFamily.DATA,
    "A script starts workers at its top level",
    _check,
    triggers=("num_workers",),
)
