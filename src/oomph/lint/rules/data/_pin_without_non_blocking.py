"""Rule `pin-without-non-blocking`: pinned batches that are copied while the host waits, or the reverse."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ..._problem import Edit, Problem, Span
from ..._rule import Rule, RuleFamily
from ...analysis import Code, DataLoaderCall, passed_values, walk
from ...sources import Document
from ._sample_code import short_source

_PINS = re.compile(r"pin_memory(?!\s*=\s*False)")
_DEVICE = re.compile(r"(?:^|_|\b)(?:dev(?:ice)?|gpu|cuda|rank|local_rank)(?:$|_|\b|\d)", re.IGNORECASE)


def _check(document: Document) -> Iterator[Problem]:
    code = document.code
    for region, batch, loaders in _regions(document):
        copies = [*_copies(code, region, batch), *_copies_by_function(document, region, batch)]
        blocking = [call for call in copies if not _has_keyword(call, "non_blocking") and len(call.args) <= 1]
        if all(_is_pinned(code, loader) for loader in loaders):
            if blocking:
                yield _blocking_problem(code, blocking)
        elif all(_is_unpinned(loader) for loader in loaders) and not _PINS.search(document.text):
            waiting = [call for call in copies if _is_true(code, call, "non_blocking")]
            if waiting:
                yield _unpinned_problem(code, waiting[0])


def _regions(document: Document) -> Iterator[tuple[ast.AST, set[str], list[DataLoaderCall]]]:
    """Yield loops over known loaders, with the names of their batches."""
    code = document.code
    for loop in code.nodes(ast.For):
        if loaders := document.loaders.in_loop(loop):
            yield loop, _target_names(code, loop), loaders
    for statement in code.nodes(ast.Assign):
        outer = next(code.loops_around(statement), None)
        if outer is not None and (loaders := document.loaders.next_batch(statement.value)):
            yield outer, _names(statement.targets[0]), loaders


def _names(target: ast.expr) -> set[str]:
    return {part.id for part in ast.walk(target) if isinstance(part, ast.Name)}


def _blocking_problem(code: Code, calls: list[ast.Call]) -> Problem:
    first = calls[0]
    message = (
        f"the loader pins its batches, but `{short_source(code, first)}` waits for the copy: pass non_blocking=True"
    )
    return Problem(code.span(first), message, tuple(_edit(code, call) for call in calls))


def _unpinned_problem(code: Code, call: ast.Call) -> Problem:
    message = (
        f"`{short_source(code, call)}` waits all the same, because the loader's batches aren't pinned: build the "
        "DataLoader with pin_memory=True"
    )
    return Problem(code.span(call), message)


def _edit(code: Code, call: ast.Call) -> Edit:
    """Return the edit that adds the argument: after the last one, or between the parentheses."""
    arguments: list[ast.AST] = [*call.args, *call.keywords]
    if arguments:
        return code.insert_after(arguments[-1], ", non_blocking=True")
    span = code.span(call)
    inside = Span(span.cell, span.end_line, span.end_column - 1, span.end_line, span.end_column - 1)
    return Edit(inside, "non_blocking=True")


def _copies(code: Code, region: ast.AST, batch: set[str]) -> Iterator[ast.Call]:
    """Yield the copies of batches to a GPU."""
    for node in walk(region):
        if isinstance(node, (ast.ListComp, ast.GeneratorExp, ast.DictComp)):
            for generator in node.generators:
                if _root(generator.iter) in batch or _is_part(generator.iter, batch):
                    batch |= _names(generator.target)
        elif isinstance(node, ast.Assign) and _is_part(node.value, batch):
            batch |= {name for target in node.targets for name in _names(target)}
        if isinstance(node, ast.Call) and _is_copy(code, node) and _copied_name(node) in batch:
            yield node


def _copies_by_function(document: Document, region: ast.AST, batch: set[str]) -> Iterator[ast.Call]:
    """Yield the copies in functions that a loop hands its batch to: `batch = to_device(batch, device)`."""
    for call in walk(region):
        function = document.calls.function(call) if isinstance(call, ast.Call) else None
        if function is None or not isinstance(call, ast.Call):
            continue
        parameters = [argument.arg for argument in function.args.args if argument.arg not in {"self", "cls"}]
        names = {name for name, value in zip(parameters, call.args, strict=False) if _root(value) in batch}
        if names:
            yield from _copies(document.code, function, names)


def _target_names(code: Code, loop: ast.For) -> set[str]:
    """Return the names of a loop's batch; the counter of `enumerate` isn't one."""
    target: ast.expr = loop.target
    iterable = loop.iter
    while isinstance(iterable, ast.Call) and iterable.args:
        is_enumerate = code.call_name(iterable) == "enumerate"
        if is_enumerate and isinstance(target, (ast.Tuple, ast.List)) and len(target.elts) == 2:  # noqa: PLR2004
            target = target.elts[1]
            break
        iterable = iterable.args[0]
    return _names(target)


def _is_part(node: ast.expr, batch: set[str]) -> bool:
    """Return True if an expression takes parts of a batch: `batch["image"]`, `batch[0]`, `batch`."""
    if isinstance(node, (ast.Tuple, ast.List)):
        return bool(node.elts) and all(_is_part(element, batch) for element in node.elts)
    while isinstance(node, (ast.Subscript, ast.Attribute)):
        node = node.value
    return isinstance(node, ast.Name) and node.id in batch


def _root(node: ast.expr) -> str | None:
    """Return the name that a batch or a part of it comes from; None if it was computed from it."""
    while isinstance(node, (ast.Subscript, ast.Attribute)):
        node = node.value
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in {"items", "values"}:
        return _root(node.func.value)
    return node.id if isinstance(node, ast.Name) else None


def _copied_name(call: ast.Call) -> str | None:
    return _root(call.func.value) if isinstance(call.func, ast.Attribute) else None


def _is_copy(code: Code, call: ast.Call) -> bool:
    func = call.func
    if not isinstance(func, ast.Attribute):
        return False
    if func.attr == "cuda":
        return True
    if func.attr != "to":
        return False
    targets = call.args[:1] + [keyword.value for keyword in call.keywords if keyword.arg == "device"]
    return bool(targets) and _is_gpu(code, targets[0])


def _is_gpu(code: Code, node: ast.expr) -> bool:
    value = code.constant(node)
    if isinstance(value, str):
        return value.startswith("cuda")
    values = code.values(node)
    if any("cpu" in ast.unparse(item) and "cuda" not in ast.unparse(item) for item in values):
        return False
    if any("cuda" in ast.unparse(item) for item in values):
        return True
    if _DEVICE.search(ast.unparse(node)):
        return True
    function = code.function(node)
    passed = passed_values(code, function, node.id) if function is not None and isinstance(node, ast.Name) else []
    return bool(passed) and all(str(code.constant(value)).startswith("cuda") for value in passed)


def _is_pinned(code: Code, loader: DataLoaderCall) -> bool:
    value = loader.settings.get("pin_memory")
    if value is None:
        return False
    if code.constant(value) is True:
        return True
    return any("is_available" in ast.unparse(item) or "== 'cuda'" in ast.unparse(item) for item in code.values(value))


def _is_unpinned(loader: DataLoaderCall) -> bool:
    value = loader.settings.get("pin_memory")
    return loader.is_complete and (value is None or (isinstance(value, ast.Constant) and value.value is False))


def _has_keyword(call: ast.Call, name: str) -> bool:
    return any(keyword.arg in {name, None} for keyword in call.keywords)


def _is_true(code: Code, call: ast.Call, name: str) -> bool:
    return any(keyword.arg == name and code.constant(keyword.value) is True for keyword in call.keywords)


PIN_WITHOUT_NON_BLOCKING = Rule(
    "pin-without-non-blocking",
    RuleFamily.DATA,
    "Pinned batches are copied while the host waits",
    _check,
    triggers=("pin_memory", "non_blocking"),
    is_fixable=True,
)
