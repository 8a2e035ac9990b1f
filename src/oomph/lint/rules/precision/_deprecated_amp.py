"""Rule `deprecated-amp`: torch.cuda.amp instead of torch.amp."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from ..._problem import Edit, Problem
from ..._rule import Rule, RuleFamily
from ...analysis import Code
from ...sources import Document
from ._amp_imports import DEVICES, OLD_NAMES, Bindings, Import, new_import

_POSITIONS = {"autocast": ("enabled", "dtype", "cache_enabled")}  # of torch.cuda.amp.autocast


@dataclass(frozen=True)
class _Use:
    """A use of an old name.

    Attributes:
        node: The name: `autocast`, `torch.cuda.amp.GradScaler`.
        name: Its last part.
        device: The device that the old module is for.
        source: The import whose name it is; None if it is reached through `torch`.
    """

    node: ast.expr
    name: str
    device: str
    source: Import | None


def _check(document: Document) -> Iterator[Problem]:
    code = document.code
    bindings = Bindings(code)
    uses = list(_uses(code, bindings))
    imports_of_uses = {use.source for use in uses}
    fixed: set[Import] = set()
    for use in uses:
        if not _runs(code, use.node) or _is_fallback(code, use.node):
            continue
        edits: tuple[Edit, ...] = ()
        if use.source is None:
            edits = _edits(code, use)
        elif use.source not in fixed:
            # An import and all uses of its names change together, or not at all.
            fixed.add(use.source)
            edits = _edits_of_import(document, use.source, [item for item in uses if item.source is use.source])
        yield Problem(code.span(use.node), _message(code.source(use.node), use.name, use.device), edits)
    reached = {use.device for use in uses if use.source is None}
    for binding in {binding.node: binding for binding in bindings.old()}.values():
        module = _module(binding.node)
        if binding.node in imports_of_uses or _is_fallback(code, binding.node) or DEVICES.get(module) in reached:
            continue
        names = [alias.name for alias in binding.node.names if alias.name in OLD_NAMES]
        message = _message(code.source(binding.node), names[0] if names else "autocast", DEVICES.get(module, "cuda"))
        yield Problem(code.span(binding.node), message, new_import(document, binding.node))


def _message(what: str, name: str, device: str) -> str:
    argument = f'device_type="{device}"' if name.startswith("custom") else f'"{device}"'
    return f"{what} is deprecated and warns since torch 2.4: use torch.amp.{name}({argument}, …)"


def _module(node: Import) -> str:
    if isinstance(node, ast.ImportFrom):
        return node.module if node.module in DEVICES else f"{node.module}.amp"
    return node.names[0].name


def _uses(code: Code, bindings: Bindings) -> Iterator[_Use]:
    """Yield the uses of old names in source order."""
    nodes: list[ast.Name | ast.Attribute] = [
        *code.nodes(ast.Name),
        *(node for node in code.nodes(ast.Attribute) if node.attr in OLD_NAMES),
    ]
    for node in sorted(nodes, key=lambda item: (item.lineno, item.col_offset)):
        written = code.name(node)
        if written is None:
            continue
        head, _, rest = written.partition(".")
        binding = bindings.find(head, node.lineno)
        full = binding.full if binding is not None else head
        module, _, name = (f"{full}.{rest}" if rest else full).rpartition(".")
        if module in DEVICES and name in OLD_NAMES:
            is_reached = full == "torch"
            yield _Use(node, name, DEVICES[module], None if is_reached or binding is None else binding.node)


def _runs(code: Code, node: ast.expr) -> bool:
    """Return True if a name is called or decorates something; a type annotation gives no warning."""
    parent = code.parent(node)
    return (isinstance(parent, ast.Call) and parent.func is node) or node in getattr(parent, "decorator_list", ())


def _is_annotation(code: Code, node: ast.expr) -> bool:
    inner: ast.AST = node
    for outer in code.ancestors(node):
        if inner is getattr(outer, "annotation", None) or inner is getattr(outer, "returns", None):
            return True
        if isinstance(outer, ast.stmt):
            return False
        inner = outer
    return False


def _is_fallback(code: Code, node: ast.AST) -> bool:
    """Return True if the code chooses between the old and the new module by version."""
    inner = node
    for outer in code.ancestors(node):
        if isinstance(outer, ast.IfExp):
            others = [side for side in (outer.test, outer.body, outer.orelse) if side is not inner]
            if any("torch.amp" in ast.unparse(side) or "ersion" in ast.unparse(side) for side in others):
                return True
        elif isinstance(outer, ast.If):
            side = outer.orelse if inner in outer.body else outer.body
            if any("torch.amp" in ast.unparse(item) for item in side) or "ersion" in ast.unparse(outer.test):
                return True
        elif isinstance(outer, ast.Try) and outer.handlers:
            names = ast.unparse(outer)
            if any(error in names for error in ("ImportError", "AttributeError", "TypeError", "ModuleNotFoundError")):
                return True
        inner = outer
    return False


def _edits_of_import(document: Document, node: Import, uses: list[_Use]) -> tuple[Edit, ...]:
    imported = new_import(document, node)
    parts = [_argument_edits(document.code, use) for use in uses if not _is_annotation(document.code, use.node)]
    if not imported or any(part is None for part in parts):
        return ()
    return (*imported, *(edit for part in parts if part is not None for edit in part))


def _edits(code: Code, use: _Use) -> tuple[Edit, ...]:
    """Return the edits of `torch.cuda.amp.autocast(…)`, whatever torch is called."""
    written = code.name(use.node) or ""
    arguments = _argument_edits(code, use)
    if arguments is None:
        return ()
    root = written.partition(".")[0]
    is_call = len(arguments) == 1 and arguments[0].span == code.span(code.parent(use.node) or use.node)
    if is_call:
        return (Edit(arguments[0].span, arguments[0].text.replace(written, f"{root}.amp.{use.name}", 1)),)
    return code.replace(use.node, f"{root}.amp.{use.name}"), *arguments


def _argument_edits(code: Code, use: _Use) -> tuple[Edit, ...] | None:
    """Return the edits that pass the device; None if the use is no plain call or decorator."""
    parent = code.parent(use.node)
    device = f'device_type="{use.device}"' if use.name.startswith("custom") else f'"{use.device}"'
    if not (isinstance(parent, ast.Call) and parent.func is use.node):
        is_decorator = use.node in getattr(parent, "decorator_list", ())
        return (code.insert_after(use.node, f"({device})"),) if is_decorator and use.name != "GradScaler" else None
    arguments: list[ast.AST] = [*parent.args, *parent.keywords]
    if not arguments:
        span = code.span(parent)
        if span.line != span.end_line:
            return None
        return (code.replace(parent, f"{code.name(use.node)}({device})"),)
    if any(isinstance(item, ast.Starred) for item in parent.args) or (parent.args and use.name.startswith("custom")):
        return None
    names = _POSITIONS.get(use.name, ())
    if use.name == "autocast" and len(parent.args) > len(names):
        return None
    first = f"{device}, {names[0]}=" if parent.args and names else f"{device}, "
    later = [
        code.insert_before(item, f"{name}=") for item, name in zip(parent.args[1:], names[1:], strict=False) if names
    ]
    return code.insert_before(arguments[0], first), *later


DEPRECATED_AMP = Rule(
    "deprecated-amp",
    RuleFamily.PRECISION,
    "torch.cuda.amp is deprecated",
    _check,
    triggers=(".amp", "import amp"),
    is_fixable=True,
)
