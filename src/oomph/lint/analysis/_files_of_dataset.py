"""Which expressions stand for all files of a data set, and which for a part of them."""

from __future__ import annotations

import ast
import re

from ._assignments import Assignment
from ._calls import LocalCalls
from ._code import Code, walk

_LISTING = {
    "glob", "iglob", "rglob", "listdir", "scandir", "iterdir", "walk", "list_images", "list_pictures", "iterrows",
    "itertuples", "findall", "DictReader",
}  # fmt: skip
_WRAPPERS = {"enumerate", "tqdm", "sorted", "list", "tuple", "zip", "natsorted", "reversed", "track", "trange", "set"}
_METHODS = {"items", "values", "keys", "tolist", "to_list", "unique", "to_numpy", "copy"}
_FILES_NAME_PARTS = (
    r"^(?:all_?|train(?:ing)?_?|val(?:id)?_?|test_?|data_?)?",
    r"(?:(?:image|img|file|picture|photo|frame|video|clip|audio|wav|npy|jpe?g|png|tile|slide|scan|dicom|sample|x)s?_?",
    r"(?:files?|paths?|names?|list|fnames|filenames|ids)|files|paths|fnames|filenames|filepaths|filelist|pngs|jpgs",
    r"|niftis|cases|patients|subjects)$",
)
_FILES_NAME = re.compile(
    "".join(_FILES_NAME_PARTS),
    re.IGNORECASE,
)
_PART_NAME = re.compile(
    r"batch|chunk|subset|sample(?![s_])|few|example|calib|demo|preview|query|mini|debug", re.IGNORECASE
)
_ALL_DATA_FUNCTION_PARTS = (
    r"^_?(?:load|read|get|build|prepare|make|create|cache|preload)_?(?:the_|whole_|full_|entire_)?",
    r"(?:all|data(?:set)?s?|folder|dir(?:ectory)?|everything|train(?:ing)?_?(?:data|set|images)",
    r"|images?_from_(?:folder|dir\w*))",
    r"(?:$|_)",
)
_ALL_DATA_FUNCTION = re.compile("".join(_ALL_DATA_FUNCTION_PARTS))
_TABLE = re.compile(r"(?:^|_)(?:df|frame|table|meta(?:data)?|csv|manifest|annotations?)$", re.IGNORECASE)
_COUNT_NAME = re.compile(r"^(?:n|num)_?(?:images|imgs|samples|files|pictures|frames|train)$", re.IGNORECASE)
_MANY = 1000  # more than a sample of the data
_MAX_VISITED = 200

# Expressions that a search has seen: names may refer to each other in circles.
Visited = set[ast.AST]


class DatasetFiles:
    """Decides whether a loop goes over all files of a data set."""

    def __init__(self, code: Code, calls: LocalCalls) -> None:
        self._code = code
        self._calls = calls

    def covers_all(self, node: ast.expr, visited: Visited | None = None) -> bool:
        """Return True if an iterable is the list of all files, as far as the document shows."""
        visited = set() if visited is None else visited
        if not is_new(node, visited):
            return False
        if isinstance(node, ast.Call):
            return self._call_covers(node, visited)
        if isinstance(node, ast.Subscript):
            return self._item_covers(node)
        if isinstance(node, (ast.Name, ast.Attribute)):
            return self._name_covers(node, visited)
        if isinstance(node, (ast.ListComp, ast.GeneratorExp)):
            return any(self.covers_all(generator.iter, visited) for generator in node.generators)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return self.covers_all(node.left, visited) or self.covers_all(node.right, visited)
        return False

    def _call_covers(self, node: ast.Call, visited: Visited) -> bool:
        func = node.func
        last = self._code.resolve(func).rpartition(".")[2] or (func.attr if isinstance(func, ast.Attribute) else "")
        if last in _LISTING:
            return True
        if last in _WRAPPERS:
            return any(self.covers_all(argument, visited) for argument in node.args)
        if last == "range" and node.args:
            length = node.args[-1]
            if isinstance(length, ast.Constant):
                return isinstance(length.value, int) and length.value >= _MANY
            if _COUNT_NAME.match((self._code.name(length) or "").rpartition(".")[2]):
                return True
            is_length = isinstance(length, ast.Call) and self._code.call_name(length) == "len" and len(length.args) == 1
            counted = length.args[0] if isinstance(length, ast.Call) and is_length else None
            return counted is not None and (self.covers_all(counted, visited) or self._is_table(counted))
        if isinstance(func, ast.Attribute) and func.attr in _METHODS and not node.args:
            return self.covers_all(func.value, visited)
        if (function := self._calls.function(node)) is not None:
            return any(self.covers_all(result, visited) for result in self._calls.results(function))
        return False

    def _item_covers(self, node: ast.Subscript) -> bool:
        """Return True for a column of a table: `df["path"]`, `df.iloc[:, 0]`."""
        holder = node.value
        if isinstance(holder, ast.Attribute) and holder.attr in {"iloc", "loc"} and isinstance(node.slice, ast.Tuple):
            return isinstance(node.slice.elts[0], ast.Slice) and self._is_table(holder.value)
        is_column = isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str)
        return is_column and self._is_table(node.value)

    def _is_table(self, node: ast.expr) -> bool:
        if any(self._code.call_name(value).endswith(("read_csv", "read_parquet")) for value in self._code.values(node)):
            return True
        return _TABLE.search((self._code.name(node) or "").rpartition(".")[2]) is not None

    def _name_covers(self, node: ast.Name | ast.Attribute, visited: Visited) -> bool:
        name = self._code.name(node)
        if name is None or _PART_NAME.search(name):
            return False
        if isinstance(node, ast.Attribute) and (self._is_table(node.value) or node.attr in {"samples", "imgs"}):
            # A column of a table, or the files of an ImageFolder.
            return not name.startswith("self.") or self._is_table(node.value)
        assignments = [item for item in self._code.assignments(name, node) if item.kind != "+="]
        if not assignments:
            return self._is_free(node) and _FILES_NAME.match(name.rpartition(".")[2]) is not None
        if _is_filled(self._code, name, node):
            return any(self.covers_all(loop.iter, visited) for loop in _filling_loops(self._code, name, node))
        return any(self._assignment_covers(item, visited) for item in assignments)

    def _is_free(self, node: ast.Name | ast.Attribute) -> bool:
        """Return True if nothing in the document gives a value: in snippets, or of another object's attribute."""
        return isinstance(node, ast.Name)

    def _assignment_covers(self, item: Assignment, visited: Visited) -> bool:
        if item.kind == "for":
            # The files of `for root, folders, files in os.walk(…)`.
            return item.value is None and isinstance(item.statement, ast.For) and self._is_walk(item.statement.iter)
        if item.kind == "argument":
            return self._argument_covers(item, visited)
        if item.kind != "=":
            return False
        if item.value is None and isinstance(item.statement, ast.Assign):
            value = item.statement.value
            arguments = value.args if isinstance(value, ast.Call) else []
            is_split = self._code.call_name(value).endswith(("train_test_split", "shuffle"))
            return is_split and any(self.covers_all(argument, visited) for argument in arguments)
        return item.value is not None and self.covers_all(item.value, visited)

    def _is_walk(self, node: ast.expr) -> bool:
        return any(self._code.call_name(part).endswith("walk") for part in walk(node))

    def _argument_covers(self, item: Assignment, visited: Visited) -> bool:
        function = item.statement
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return False
        if function.name == "__init__":
            return _FILES_NAME.match(item.name) is not None
        if self._calls.calls_of(function):
            return any(self.covers_all(value, visited) for value in self._calls.arguments(function, item.name))
        return _ALL_DATA_FUNCTION.match(function.name) is not None and _FILES_NAME.match(item.name) is not None


def _is_filled(code: Code, name: str, node: ast.AST) -> bool:
    values = [item.value for item in code.assignments(name, node) if item.kind == "="]
    return bool(values) and all(
        (isinstance(value, ast.List) and not value.elts)
        or (isinstance(value, ast.Call) and code.call_name(value) == "list" and not value.args)
        for value in values
    )


def _filling_loops(code: Code, name: str, node: ast.AST) -> list[ast.For]:
    """Return the loops that append to a list."""
    scopes = {code.scope(item.statement) for item in code.assignments(name, node)}
    loops = []
    for call in code.nodes(ast.Call):
        func = call.func
        if not (
            isinstance(func, ast.Attribute) and func.attr in {"append", "extend"} and code.name(func.value) == name
        ):
            continue
        if code.scope(call) in scopes or name.startswith("self."):
            loops += [loop for loop in code.loops_around(call) if isinstance(loop, ast.For)]
    return loops


def is_new(node: ast.AST, visited: Visited) -> bool:
    """Return True if a search hasn't seen a node yet, and mark it; a search over too many nodes ends."""
    if node in visited or len(visited) > _MAX_VISITED:
        return False
    visited.add(node)
    return True
