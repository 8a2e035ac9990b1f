"""Rule `env-set-too-late`: variables of CUDA and torch that are set after they were read."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from ..._problem import Problem, Span
from ..._rule import Rule, RuleFamily
from ...analysis import Code, Function
from ...sources import Document, DocumentKind

_ALLOCATOR = {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF"}
_DEVICES = {
    "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_LAUNCH_BLOCKING", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES",
    "PYTORCH_NO_CUDA_MEMORY_CACHING", "CUDA_MODULE_LOADING", "CUDA_DEVICE_MAX_CONNECTIONS",
}  # fmt: skip
# Functions that initialize CUDA. `torch.cuda.is_available` counts the GPUs, which reads the list of visible ones.
_INITIALIZING = {
    "init", "current_device", "get_device_name", "get_device_properties", "get_device_capability", "synchronize",
    "mem_get_info", "set_device", "current_stream", "Stream", "get_arch_list",
}  # fmt: skip
_MAPS = ("auto", "cuda", "balanced", "sequential", 0)
_MAX_CALL_CHARS = 60
_MAGIC = re.compile(r"(?:set_)?env\s+(\w+)")
# Processes that are started later see the variable all the same.
_STARTERS = re.compile(r"\b(?:subprocess|Popen|mp\.spawn|multiprocessing|spawn|os\.exec\w*|os\.system|Process)\b")


@dataclass(frozen=True)
class _Setting:
    """A statement that sets a variable; magics of notebooks have no node."""

    name: str
    span: Span
    node: ast.AST | None


def _check(document: Document) -> Iterator[Problem]:
    code = document.code
    uses: dict[bool, list[ast.Call]] = {}  # by whether counting the GPUs is a use
    for setting in _settings(document):
        counts = setting.name.endswith("VISIBLE_DEVICES")
        if counts not in uses:
            uses[counts] = _uses(code, counts=counts)
        function = code.function(setting.node) if setting.node is not None else None
        use = next((call for call in uses[counts] if _runs_before(document, call, setting, function)), None)
        if use is not None:
            message = (
                f"{setting.name} is set after CUDA was initialized by `{_short(code, use)}` and has no effect: set it "
                "before `import torch`"
            )
            yield Problem(setting.span, message)


def _short(code: Code, node: ast.AST) -> str:
    text = code.source(node)
    return text if len(text) <= _MAX_CALL_CHARS else f"{text[: _MAX_CALL_CHARS - 1]}…"


def _settings(document: Document) -> Iterator[_Setting]:
    code = document.code
    names = _ALLOCATOR | _DEVICES
    for subscript in code.nodes(ast.Subscript):
        if isinstance(subscript.ctx, ast.Store) and code.resolve(subscript.value) == "os.environ":
            name = code.constant(subscript.slice)
            if name in names and not _is_for_others(code, subscript):
                yield _Setting(str(name), code.span(code.statement(subscript)), subscript)
    for call in code.nodes(ast.Call):
        for name in _names_of_call(code, call):
            if name in names and not _is_for_others(code, call):
                yield _Setting(name, code.span(call), call)
    for command in document.commands:
        if command.is_escaped and (match := _MAGIC.match(command.text)) and match[1] in names:
            yield _Setting(match[1], command.span, None)


def _names_of_call(code: Code, call: ast.Call) -> Iterator[str]:
    name = code.call_name(call)
    if name in {"os.environ.setdefault", "os.putenv", "os.environ.__setitem__"} and call.args:
        yield str(code.constant(call.args[0]))
    elif name == "os.environ.update":
        yield from (keyword.arg for keyword in call.keywords if keyword.arg)
        for argument in call.args:
            if isinstance(argument, ast.Dict):
                yield from (str(code.constant(key)) for key in argument.keys if key is not None)


def _is_for_others(code: Code, node: ast.AST) -> bool:
    """Return True if the function of a setting starts processes, or restores a value afterwards."""
    function = code.function(node)
    if _is_in_finally(code, node):
        return True
    return function is not None and _STARTERS.search(ast.unparse(function)) is not None


def _is_in_finally(code: Code, node: ast.AST) -> bool:
    inner = node
    for outer in code.ancestors(node):
        if isinstance(outer, ast.Try) and inner in outer.finalbody:
            return True
        inner = outer
    return False


def _uses(code: Code, *, counts: bool) -> list[ast.Call]:
    """Return the calls that initialize CUDA, by themselves or in a function of the document that they call."""
    uses = [call for call in code.nodes(ast.Call) if _is_use(code, call, counts=counts)]
    functions = {function.name for call in uses if (function := code.function(call)) is not None}
    calls = code.nodes(ast.Call) if functions else []
    uses += [call for call in calls if isinstance(call.func, ast.Name) and call.func.id in functions]
    return sorted(uses, key=lambda call: (call.lineno, call.col_offset))


def _runs_before(document: Document, node: ast.AST, setting: _Setting, function: Function | None) -> bool:
    """Return True if a node surely runs before a setting: earlier in the same function, or at the top level."""
    code = document.code
    span = code.span(node)
    if (span.cell or 0, span.line, span.column) >= (setting.span.cell or 0, setting.span.line, setting.span.column):
        return False
    around = code.function(node)
    if around is not None:
        return around is function and _is_same_program(document, node, setting)
    if any(isinstance(outer, (ast.Lambda, ast.ClassDef)) for outer in code.ancestors(node)):
        return False
    if function is not None and _is_main_block(code, node):
        return False
    return _is_same_program(document, node, setting)


def _is_main_block(code: Code, node: ast.AST) -> bool:
    return any(isinstance(outer, ast.If) and "__name__" in ast.unparse(outer.test) for outer in code.ancestors(node))


def _is_same_program(document: Document, node: ast.AST, setting: _Setting) -> bool:
    """Return True if both run in one process: cells of a notebook do, fences of a text may be alternatives."""
    if document.kind is DocumentKind.NOTEBOOK or setting.node is None:
        return True
    return document.code.piece(node) == document.code.piece(setting.node)


def _is_use(code: Code, call: ast.Call, *, counts: bool) -> bool:
    """Return True if a call puts something on the GPU or asks for its properties."""
    name = code.call_name(call)
    if name.startswith("torch.cuda."):
        last = name.removeprefix("torch.cuda.")
        return last in _INITIALIZING or (last == "is_available" and counts)
    if any(keyword.arg == "device" and _is_cuda(code, keyword.value) for keyword in call.keywords):
        return name.startswith("torch.") and name != "torch.device"
    if name.endswith(".from_pretrained"):
        return any(keyword.arg == "device_map" and code.constant(keyword.value) in _MAPS for keyword in call.keywords)
    function = call.func
    if not isinstance(function, ast.Attribute):
        return False
    if function.attr == "cuda":
        return not name.startswith("torch.")
    return function.attr == "to" and bool(call.args) and _is_cuda(code, call.args[0])


def _is_cuda(code: Code, node: ast.expr) -> bool:
    """Return True if a device is a GPU: `"cuda"`, `"cuda:1"`, `torch.device("cuda")`, or such a variable."""
    values = code.values(node)
    return bool(values) and all(_is_cuda_value(code, value) for value in values)


def _is_cuda_value(code: Code, value: ast.expr) -> bool:
    if isinstance(value, ast.IfExp):
        return _is_cuda_value(code, value.body) or _is_cuda_value(code, value.orelse)
    if isinstance(value, ast.Call) and code.call_name(value) == "torch.device" and value.args:
        return _is_cuda_value(code, value.args[0])
    if not isinstance(value, ast.Constant) or isinstance(value.value, bool):
        return False
    return isinstance(value.value, int) or str(value.value).startswith("cuda")


ENV_SET_TOO_LATE = Rule(
    "env-set-too-late",
    RuleFamily.COMMANDS,
    "A variable of CUDA or torch is set after it was read",
    _check,
    triggers=("CUDA_", "ALLOC_CONF", "_VISIBLE_DEVICES"),
)
