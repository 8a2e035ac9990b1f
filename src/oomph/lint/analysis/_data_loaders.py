"""DataLoaders: where a document builds them, with which settings, and which one a loop iterates over."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ._calls import LocalCalls, called_name, default_of
from ._code import Code

_ARGUMENTS = (
    "dataset", "batch_size", "shuffle", "sampler", "batch_sampler", "num_workers", "collate_fn", "pin_memory",
    "drop_last",
)  # fmt: skip
_MODULES = ("torch.utils.data", "torch.utils.data.dataloader", "monai.data", "torchdata.stateful_dataloader")
# Functions that hand on the elements of their argument.
_WRAPPERS = {"enumerate", "tqdm", "iter", "islice", "track", "trange", "cycle", "progress_bar", "prefetch", "log_every"}
_MAX_DEPTH = 5


@dataclass(frozen=True, eq=False)
class DataLoaderCall:
    """A call of torch's DataLoader.

    Attributes:
        call: The call.
        settings: Its arguments by name.
        is_complete: False if it has arguments that the document doesn't show (`**options` of unknown content).
        name: The name or attribute that receives the loader, as written; None if none does.
    """

    call: ast.Call
    settings: Mapping[str, ast.expr]
    is_complete: bool
    name: str | None

    @property
    def dataset(self) -> ast.expr | None:
        """The dataset."""
        return self.settings.get("dataset")


class DataLoaders:
    """All DataLoaders of a document."""

    def __init__(self, code: Code, calls: LocalCalls) -> None:
        self._code = code
        self._calls = calls
        self.all: list[DataLoaderCall] = [_read(code, call) for call in code.nodes(ast.Call) if _is_loader(code, call)]
        self._by_loop: dict[ast.AST, list[DataLoaderCall]] = {}
        self._by_call = {loader.call: loader for loader in self.all}

    def of(self, node: ast.expr) -> list[DataLoaderCall]:
        """Return the loaders that an expression may be; empty if unknown.

        A name that is assigned several times has the last value before the expression.
        """
        return list(dict.fromkeys(self._resolve(node, 0)))

    def in_loop(self, loop: ast.For | ast.AsyncFor) -> list[DataLoaderCall]:
        """Return the loaders that a loop iterates over."""
        if loop not in self._by_loop:
            self._by_loop[loop] = self.of(iterated(self._code, loop.iter))
        return self._by_loop[loop]

    def next_batch(self, node: ast.expr | None) -> list[DataLoaderCall]:
        """Return the loaders that an expression takes a batch from: `next(iter(loader))`, `next(batches)`."""
        if not (isinstance(node, ast.Call) and self._code.call_name(node) == "next" and node.args):
            return []
        iterator = node.args[0]
        values = self._code.values(iterator) if isinstance(iterator, (ast.Name, ast.Attribute)) else [iterator]
        calls = [value for value in values if isinstance(value, ast.Call) and self._code.call_name(value) == "iter"]
        return [loader for call in calls if call.args for loader in self.of(call.args[0])]

    def _resolve(self, node: ast.expr, depth: int) -> Iterator[DataLoaderCall]:
        if depth > _MAX_DEPTH:
            return
        if isinstance(node, ast.Call):
            if node in self._by_call:
                yield self._by_call[node]
            elif (function := self._calls.function(node)) is not None:
                for result in self._calls.results(function):
                    yield from self._resolve(result, depth + 1)
            elif node.args and (
                self._code.call_name(node).endswith((".prepare", "setup_dataloaders")) or called_name(node) in _WRAPPERS
            ):
                yield from self._resolve(node.args[0], depth + 1)
        elif isinstance(node, (ast.Name, ast.Attribute)):
            yield from self._resolve_name(node, depth)
        elif isinstance(node, ast.Subscript):
            yield from self._resolve_item(node, depth)
        elif isinstance(node, ast.IfExp):
            yield from self._resolve(node.body, depth + 1)
            yield from self._resolve(node.orelse, depth + 1)

    def _resolve_name(self, node: ast.Name | ast.Attribute, depth: int) -> Iterator[DataLoaderCall]:
        code, name = self._code, self._code.name(node)
        assignments = code.assignments(name, node) if name else []
        values = [item for item in assignments if item.kind == "="]
        before = [item for item in values if _line(item.statement) < node.lineno]
        is_local = bool(values) and code.scope(values[0].statement) is code.scope(node)
        for item in before[-1:] if before and is_local else values:
            if item.value is not None:
                yield from self._resolve(item.value, depth + 1)
            elif isinstance(item.statement, ast.Assign):
                yield from self._resolve_unpacked(item.statement, item.name, depth)
        for item in assignments:
            if item.kind == "argument" and isinstance(item.statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
                for argument in self._calls.arguments(item.statement, item.name):
                    yield from self._resolve(argument, depth + 1)

    def _resolve_unpacked(self, statement: ast.Assign, name: str, depth: int) -> Iterator[DataLoaderCall]:
        """Yield the loaders of one name in `train_loader, val_loader = make_loaders()`."""
        target = statement.targets[0]
        if not isinstance(target, (ast.Tuple, ast.List)):
            return
        names = [self._code.name(element) for element in target.elts]
        position = names.index(name) if name in names else -1
        function = self._calls.function(statement.value)
        if position < 0 or function is None:
            return
        for result in self._calls.results(function):
            if isinstance(result, (ast.Tuple, ast.List)) and position < len(result.elts):
                yield from self._resolve(result.elts[position], depth + 1)

    def _resolve_item(self, node: ast.Subscript, depth: int) -> Iterator[DataLoaderCall]:
        """Yield the loaders under a key of a dict literal or comprehension: `loaders["train"]`."""
        key = self._code.constant(node.slice)
        for value in self._code.values(node.value):
            if isinstance(value, ast.Dict):
                for name, item in zip(value.keys, value.values, strict=True):
                    if name is not None and self._code.constant(name) == key:
                        yield from self._resolve(item, depth + 1)
            elif isinstance(value, ast.DictComp):
                yield from self._resolve(value.value, depth + 1)


def iterated(code: Code, node: ast.expr) -> ast.expr:
    """Return what a loop iterates over, without `enumerate`, `tqdm` and the like."""
    while isinstance(node, ast.Call) and code.call_name(node).rpartition(".")[2] in _WRAPPERS and node.args:
        node = node.args[0]
    return node


def integer(code: Code, node: ast.AST | None) -> int | None:
    """Return the value of an integer constant, also of a product, a name with one value or an argument's default."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        left, right = integer(code, node.left), integer(code, node.right)
        return left * right if left is not None and right is not None else None
    value = code.constant(node)
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(node, (ast.Name, ast.Attribute)):
        return _indirect_integer(code, node)
    return None


def _indirect_integer(code: Code, node: ast.Name | ast.Attribute) -> int | None:
    assignments = code.assignments(code.name(node) or "", node)
    if len(assignments) != 1:
        return None
    item = assignments[0]
    if item.kind == "argument" and isinstance(item.statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
        default = default_of(item.statement, item.name)
        return integer(code, default) if isinstance(default, (ast.Constant, ast.Name)) else None
    is_direct = isinstance(item.value, ast.BinOp) or (isinstance(item.value, ast.Name) and item.value.id != item.name)
    is_argument = isinstance(item.value, ast.Name) and isinstance(node, ast.Attribute)
    return integer(code, item.value) if item.kind == "=" and (is_direct or is_argument) else None


def _is_loader(code: Code, call: ast.Call) -> bool:
    func = call.func
    last = called_name(call)
    if not last.endswith("DataLoader"):
        return False
    module, _, name = code.resolve(func).rpartition(".")
    return module in _MODULES and name in {"DataLoader", "StatefulDataLoader"}


def _read(code: Code, call: ast.Call) -> DataLoaderCall:
    settings: dict[str, ast.expr] = {}
    is_complete = len(call.args) <= len(_ARGUMENTS)
    for name, value in zip(_ARGUMENTS, call.args, strict=False):
        if isinstance(value, ast.Starred):
            is_complete = False
            break
        settings[name] = value
    for keyword in call.keywords:
        if keyword.arg is not None:
            settings[keyword.arg] = keyword.value
            continue
        options = _options(code, keyword.value)
        is_complete = is_complete and options is not None
        for name, value in (options or {}).items():
            settings.setdefault(name, value)
    return DataLoaderCall(call, settings, is_complete, _target(code, call))


def _options(code: Code, node: ast.expr) -> dict[str, ast.expr] | None:
    """Return the arguments in `**options`: a dict that the document writes, and never changes."""
    values: Sequence[ast.expr] = code.values(node)
    if len(values) != 1 or _changes(code, node):
        return None
    value = values[0]
    if isinstance(value, ast.Dict):
        if any(not isinstance(key, ast.Constant) for key in value.keys):
            return None
        pairs = zip(value.keys, value.values, strict=True)
        return {str(key.value): item for key, item in pairs if isinstance(key, ast.Constant)}
    if isinstance(value, ast.Call) and code.call_name(value) == "dict" and not value.args:
        return {keyword.arg: keyword.value for keyword in value.keywords if keyword.arg is not None}
    return None


def _changes(code: Code, node: ast.expr) -> bool:
    """Return True if a dict is changed after its creation: `options.update(…)`, `options["shuffle"] = True`."""
    name = code.name(node)
    if name is None:
        return False
    is_updated = any(code.name(call.func) == f"{name}.update" for call in code.nodes(ast.Call))
    return is_updated or any(
        isinstance(target, ast.Subscript) and code.name(target.value) == name
        for statement in code.nodes(ast.Assign)
        for target in statement.targets
    )


def _target(code: Code, call: ast.Call) -> str | None:
    parent = code.parent(call)
    if isinstance(parent, ast.Assign) and parent.value is call:
        target = parent.targets[0]
        if isinstance(target, ast.Subscript):
            key = code.constant(target.slice)
            return f"{code.name(target.value)}.{key}" if isinstance(key, str) else code.name(target.value)
        return code.name(target)
    if isinstance(parent, ast.Dict) and call in parent.values:
        key = parent.keys[parent.values.index(call)]
        value = code.constant(key)
        return value if isinstance(value, str) else None
    if isinstance(parent, ast.DictComp) and parent.value is call:
        # The keys of `{part: DataLoader(…) for part in ("train", "val")}`.
        parts = parent.generators[0].iter
        names = [code.constant(part) for part in parts.elts] if isinstance(parts, (ast.List, ast.Tuple)) else []
        return next((name for name in names if isinstance(name, str)), None)
    if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Attribute) and parent.func.attr == "fit":
        return "train" if call in parent.args[1:2] else None
    if isinstance(parent, ast.keyword) and parent.arg in {"train_dataloaders", "train_dataloader", "train_loader"}:
        return parent.arg
    if isinstance(parent, ast.Return):
        function = code.function(call)
        return function.name if function is not None else None
    if isinstance(parent, ast.Tuple) and isinstance(outer := code.parent(parent), ast.Assign):
        target = outer.targets[0]
        if isinstance(target, ast.Tuple) and len(target.elts) == len(parent.elts):
            return code.name(target.elts[parent.elts.index(call)])
    return None


def _line(node: ast.AST) -> int:
    return int(getattr(node, "lineno", 0))
