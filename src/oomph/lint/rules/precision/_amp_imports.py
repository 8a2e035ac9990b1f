"""Imports of torch's old modules for mixed precision, and the names that they bind."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from ..._problem import Edit, Span
from ...analysis import Code
from ...sources import Document, split_lines

DEVICES = {"torch.cuda.amp": "cuda", "torch.cpu.amp": "cpu"}
OLD_NAMES = ("autocast", "GradScaler", "custom_fwd", "custom_bwd")
Import = ast.Import | ast.ImportFrom


@dataclass(frozen=True)
class Binding:
    """A name that an import binds.

    Attributes:
        full: The full name.
        node: The import.
    """

    full: str
    node: Import


class Bindings:
    """Names by the import that binds them; the fences of an answer may import the same name from two modules."""

    def __init__(self, code: Code) -> None:
        self._bindings: dict[str, list[Binding]] = {}
        imports: list[Import] = [*code.nodes(ast.Import), *code.nodes(ast.ImportFrom)]
        for node in sorted(imports, key=lambda item: item.lineno):
            for alias in node.names:
                local, full = _names(node, alias)
                self._bindings.setdefault(local, []).append(Binding(full, node))

    def find(self, name: str, line: int) -> Binding | None:
        """Return the last import of a name before a line, or the first one."""
        bindings = self._bindings.get(name, [])
        before = [binding for binding in bindings if binding.node.lineno <= line]
        return before[-1] if before else next(iter(bindings), None)

    def old(self) -> list[Binding]:
        """Return the bindings of the old modules and of the names in them."""
        return [
            binding
            for bindings in self._bindings.values()
            for binding in bindings
            if _is_old(binding.full) or _imports_module(binding.node)
        ]


def new_import(document: Document, node: Import) -> tuple[Edit, ...]:
    """Return the edit that imports from the new module; nothing if it doesn't have all of the names."""
    span = document.code.span(node)
    lines = split_lines(document.sources.get(span.cell, ""))
    text = lines[span.line - 1] if span.line <= len(lines) else ""
    names = {alias.name for alias in node.names}
    if isinstance(node, ast.ImportFrom) and node.module in DEVICES:
        old, new, is_whole = node.module, "torch.amp", names <= set(OLD_NAMES)
    elif isinstance(node, ast.ImportFrom):
        old, new, is_whole = node.module or "", "torch", names == {"amp"}
    else:
        old, new, is_whole = node.names[0].name, "torch.amp", len(node.names) == 1
    start = text.find(old, span.column)
    if not is_whole or start < 0 or not old:
        return ()
    return (Edit(Span(span.cell, span.line, start, span.line, start + len(old)), new),)


def _names(node: Import, alias: ast.alias) -> tuple[str, str]:
    """Return the local and the full name of an imported name."""
    if isinstance(node, ast.ImportFrom):
        return alias.asname or alias.name, f"{'.' * node.level}{node.module or ''}.{alias.name}"
    head = alias.name.partition(".")[0]
    return (alias.asname, alias.name) if alias.asname else (head, head)


def _is_old(full: str) -> bool:
    module, _, name = full.rpartition(".")
    return full in DEVICES or (module in DEVICES and name in OLD_NAMES)


def _imports_module(node: Import) -> bool:
    return isinstance(node, ast.Import) and any(alias.name in DEVICES for alias in node.names)
