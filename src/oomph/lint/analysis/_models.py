"""Models of a document: which names hold one, where it is called, and which functions train or call it."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache

from ._code import Code, Function
from ._roles import is_loader, is_model, is_optimizer, is_scaler, is_scheduler, last_part

_CACHED_DOCUMENTS = 4
# Methods that only a module has; those of optimizers and schedulers with the same name are ruled out by their role.
_MODULE_METHODS = {"parameters", "named_parameters", "eval", "train", "zero_grad", "modules", "named_modules"}
_MODEL_MAKERS_PARTS = (
    r"^(?:torchvision\.models\.|timm\.create_model$|torch\.hub\.load$|torch\.compile$)",
    r"^segmentation_models_pytorch\.",
    r"^torch\.nn\.(?!functional|init|utils|parameter|Parameter|\w*Loss$)(?:parallel\.)?[A-Z]",
)
_MODEL_MAKERS = re.compile("|".join(_MODEL_MAKERS_PARTS))
# `build_model(…)` makes a model and `train_model(…)` uses one, neither is a model.
_VERBS = (
    "get", "create", "build", "make", "load", "init", "save", "setup", "set", "prepare", "wrap", "convert", "export",
    "compile", "print", "summari[sz]e", "replace", "update", "train", "eval", "evaluate", "test", "validate", "fit",
    "run", "freeze", "unfreeze", "is", "has", "find", "parse", "plot", "show", "check", "count", "select", "unwrap",
    "extract", "clean", "delete", "free", "reset", "move", "register", "list", "add", "from", "to", "log", "profile",
    "measure", "benchmark", "quantize", "prune", "fuse", "push", "download", "upload", "new", "clone", "copy",
    "initialize", "configure", "resolve", "apply", "attach", "infer", "predict", "visualize",
)  # fmt: skip
_VERB = re.compile(rf"^_*(?:{'|'.join(_VERBS)})_", re.IGNORECASE)
_MODEL_WORD = re.compile(
    r"model|net|module|generator|discriminator|backbone|student|teacher|encoder|decoder|classifier|detector",
    re.IGNORECASE,
)
# Names that alone say which network it is.
_NETWORK = re.compile(
    r"^(?:vae|autoencoder|rnn|lstm|gru|cnn|mlp|bert|gpt|vit|policy|critic|actor|transformer|clip_model)$"
)
_FORWARD_METHODS = {
    "forward", "forward_features", "extract_features", "features", "backbone", "encode_image", "encode_text",
    "get_image_features", "get_text_features",
}  # fmt: skip
_INFERERS = {"sliding_window_inference": 3}  # functions of MONAI that run a model, with its position
_TRAINING_ATTRIBUTES = {"backward", "manual_backward", "minimize"}
_TRAINING_CALLS = {"torch.autograd.grad", "torch.autograd.backward", "torch.autograd.functional.jacobian"}
_CRITERION_ARGUMENTS = 2  # output and target
_MOVES = {"to", "cuda", "cpu", "train", "eval", "requires_grad_", "half", "float", "double", "bfloat16"}
_WRAPPERS = {"enumerate", "tqdm.tqdm", "tqdm", "iter", "islice", "itertools.islice", "zip", "reversed", "track", "list"}


@lru_cache(maxsize=_CACHED_DOCUMENTS)
def model_names(code: Code) -> frozenset[str]:
    """Return the dotted names that hold a model because of what is done with them or assigned to them."""
    names: set[str] = set()
    for call in code.nodes(ast.Call):
        func = call.func
        if isinstance(func, ast.Attribute) and func.attr in _MODULE_METHODS and not call.keywords:
            name = code.name(func.value)
            if name and name not in {"self", "super", "cls"} and not _is_other_role(code, func.value):
                names.add(name)
    modules = {
        owner.name
        for owner in code.nodes(ast.ClassDef)
        if any(isinstance(item, ast.FunctionDef) and item.name == "forward" for item in owner.body)
        and not owner.name.endswith("Loss")
    }
    for statement in code.nodes(ast.Assign):
        value = statement.value
        while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and code.name(value.func) is None:
            value = value.func.value  # Net().to(device)
        maker = code.call_name(value)
        if maker and (maker in modules or _MODEL_MAKERS.match(maker)):
            names.update(name for target in statement.targets if (name := code.name(target)))
    names |= {name for name, _ in _forward_passes(code)}
    return frozenset(names | _other_names(code, names))


@lru_cache(maxsize=_CACHED_DOCUMENTS)
def criterion_names(code: Code) -> frozenset[str]:
    """Return the names of functions that get the output of a model, and whose result is differentiated."""
    return frozenset(name for _, name in _forward_passes(code))


@lru_cache(maxsize=_CACHED_DOCUMENTS)
def _forward_passes(code: Code) -> tuple[tuple[str, str], ...]:
    """Return the names of model and criterion where their use shows them.

    In `out = f(x)`, `value = g(out, y)` and `value.backward()` with x and y of a batch, f is a model and g a criterion.
    """
    pairs: list[tuple[str, str]] = []
    for call in code.nodes(ast.Call):
        func = call.func
        if not (isinstance(func, ast.Attribute) and func.attr == "backward" and not call.args):
            continue
        batch = {
            item.id
            for loop in code.loops_around(call)
            if isinstance(loop, ast.For)
            for item in ast.walk(loop.target)
            if isinstance(item, ast.Name)
        }
        for value in code.values(func.value) if batch and code.name(func.value) else ():
            if not isinstance(value, ast.Call) or len(value.args) != _CRITERION_ARGUMENTS or value.keywords:
                continue
            criterion = _unknown_name(code, value.func)
            for output in (value.args[0], *code.values(value.args[0])):
                model = _unknown_name(code, output.func) if isinstance(output, ast.Call) else None
                inputs = output.args if isinstance(output, ast.Call) else []
                if criterion and model and len(inputs) == 1 and _roots(inputs[0]) & batch:
                    pairs.append((model, criterion))
    return tuple(pairs)


def _unknown_name(code: Code, node: ast.expr) -> str | None:
    """Return a plain name that the document neither defines nor imports."""
    is_unknown = isinstance(node, ast.Name) and node.id not in code.aliases and "*" not in code.aliases
    return node.id if is_unknown and isinstance(node, ast.Name) and not code.assignments(node.id, node) else None


def _roots(node: ast.expr) -> set[str]:
    return {item.id for item in ast.walk(node) if isinstance(item, ast.Name)}


def _other_names(code: Code, names: set[str]) -> set[str]:
    """Return the attributes that receive a model by its name: `self.m = m`, `self.m, self.opt = m, opt`."""
    others: set[str] = set()
    for statement in code.nodes(ast.Assign):
        target, value = statement.targets[0], statement.value
        pairs = [(target, value)]
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            pairs = list(zip(target.elts, value.elts, strict=True))
        for left, right in pairs:
            source = _unmoved(right)
            if isinstance(source, ast.Name) and source.id in names and isinstance(left, ast.Attribute):
                others.add(code.name(left) or "")
    return others - {""}


def _unmoved(node: ast.expr) -> ast.expr:
    """Return `m` of `m.to(device).eval()`."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _MOVES:
        node = node.func.value
    return node


def _is_other_role(code: Code, node: ast.expr) -> bool:
    last = last_part(code.name(node)).lower()
    named = "train" in last or "dataset" in last or "loader" in last
    return named or is_optimizer(code, node) or is_scheduler(code, node) or is_scaler(code, node)


@lru_cache(maxsize=_CACHED_DOCUMENTS)
def model_calls(code: Code) -> frozenset[ast.Call]:
    """Return the calls that run the forward pass of a model."""
    return frozenset(call for call in code.nodes(ast.Call) if _is_model_call(code, call))


def called_model(call: ast.Call) -> ast.expr:
    """Return the model that a call runs: the function itself, or the argument of a function that runs it."""
    position = _INFERERS.get(call.func.attr if isinstance(call.func, ast.Attribute) else last_part(_plain(call.func)))
    if position is None:
        return call.func
    named = [item.value for item in call.keywords if item.arg == "predictor"]
    return next(iter((*named, *call.args[position : position + 1])), call.func)


def _plain(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def _is_model_call(code: Code, call: ast.Call) -> bool:
    func: ast.expr = call.func
    if called_model(call) is not func:
        return code.name(called_model(call)) is not None
    if not (call.args or call.keywords) or not isinstance(func, (ast.Name, ast.Attribute)):
        return False
    if isinstance(func, ast.Attribute) and func.attr in _FORWARD_METHODS:
        func = func.value
        if isinstance(func, ast.Name) and func.id in {"self", "super"}:
            return False
    name = code.name(func)
    if name is None:
        return False
    if name in model_names(code):
        return True
    last = last_part(name)
    if _NETWORK.match(last):
        return not any(assignment.kind == "def" for assignment in code.assignments(name, call))
    if (
        not _MODEL_WORD.search(last)
        or _VERB.match(last)
        or (last[:1].isupper() and len(last) > len("G1"))
        or name in code.aliases
    ):
        return False
    if not is_model(code, func):
        return False
    return not any(assignment.kind == "def" for assignment in code.assignments(name, call))


@lru_cache(maxsize=_CACHED_DOCUMENTS)
def training_calls(code: Code) -> frozenset[ast.Call]:
    """Return the calls that compute gradients."""
    return frozenset(
        call
        for call in code.nodes(ast.Call)
        if (isinstance(call.func, ast.Attribute) and call.func.attr in _TRAINING_ATTRIBUTES)
        or code.call_name(call) in _TRAINING_CALLS
    )


@lru_cache(maxsize=_CACHED_DOCUMENTS)
def training_regions(code: Code) -> frozenset[ast.AST]:
    """Return every node that contains a call that computes gradients; functions end the search."""
    return frozenset(_ancestors_in_function(code, training_calls(code)))


@lru_cache(maxsize=_CACHED_DOCUMENTS)
def heavy_functions(code: Code) -> frozenset[str]:
    """Return the names of the functions that run a model or compute gradients, also through one another."""
    bodies: dict[str, set[str]] = defaultdict(set)
    heavy = {
        function.name
        for call in (*model_calls(code), *training_calls(code))
        if (function := code.function(call)) is not None
    }
    for call in code.nodes(ast.Call):
        function = code.function(call)
        if function is not None:
            bodies[function.name].add(last_part(code.name(call.func)))
    is_growing = bool(heavy)
    while is_growing:
        callers = {name for name, called in bodies.items() if name not in heavy and called & heavy}
        heavy |= callers
        is_growing = bool(callers)
    return frozenset(heavy)


@lru_cache(maxsize=_CACHED_DOCUMENTS)
def _calls_by_name(code: Code) -> dict[str, list[ast.Call]]:
    calls: dict[str, list[ast.Call]] = defaultdict(list)
    for call in code.nodes(ast.Call):
        func = call.func
        calls[func.attr if isinstance(func, ast.Attribute) else last_part(code.name(func))].append(call)
    return calls


def callers(code: Code, function: Function) -> list[ast.Call]:
    """Return the calls of a function in the document, by its name."""
    return [call for call in _calls_by_name(code).get(function.name, []) if not code.is_inside(call, function)]


def calls_of(code: Code, name: str) -> list[ast.Call]:
    """Return the calls of functions and methods with a name, without regard to what they belong to."""
    return _calls_by_name(code).get(name, [])


def loop_sources(code: Code, loop: ast.AST) -> Iterator[ast.expr]:
    """Yield what a `for` loop iterates over, without `enumerate`, `tqdm` and the like."""
    if isinstance(loop, (ast.For, ast.AsyncFor, ast.comprehension)):
        yield from _unwrapped(code, loop.iter, 3)


def _unwrapped(code: Code, node: ast.expr, depth: int) -> Iterator[ast.expr]:
    if isinstance(node, ast.Call) and code.call_name(node) in _WRAPPERS and depth:
        for argument in node.args:
            yield from _unwrapped(code, argument, depth - 1)
        return
    yield node
    if isinstance(node, ast.Name) and depth:
        for value in code.values(node):
            if isinstance(value, ast.Call) and code.call_name(value) in _WRAPPERS:
                yield from _unwrapped(code, value, depth - 1)


def iterates_over_loader(code: Code, loop: ast.AST) -> bool:
    """Return True if a loop takes its batches from a DataLoader."""
    return any(is_loader(code, source) for source in loop_sources(code, loop))


def _ancestors_in_function(code: Code, nodes: frozenset[ast.Call]) -> Iterator[ast.AST]:
    seen: set[ast.AST] = set()
    for node in nodes:
        for outer in code.ancestors(node):
            if outer in seen:
                break
            seen.add(outer)
            yield outer
            if isinstance(outer, (ast.FunctionDef, ast.AsyncFunctionDef)):
                break
