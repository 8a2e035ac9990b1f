"""Roles of variables: which name holds an optimizer, a gradient scaler, a loss, a model or a loader.

A value that shows the role decides; otherwise the name does, as in snippets and functions with arguments.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from functools import lru_cache

from ._code import Code, walk

_OPTIMIZER = re.compile(
    r"(?:^|_)(?:opt|optim|optimi[sz]er)s?(?:$|_|\d|[A-Z])|^(?:sgd|adamw?|adafactor)\d?$", re.IGNORECASE
)
_SCALER = re.compile(r"(?:^|_)(?:grad_?)?scaler(?:$|_|\d)", re.IGNORECASE)
_SCHEDULER = re.compile(r"(?:^|_)(?:sched|scheduler|lr_?sched\w*|warmup|annealing|one_?cycle)(?:$|_|\d)", re.IGNORECASE)
_LOSS = re.compile(r"(?:^|_)(?:loss(?:es)?|cost|nll|kld?|err[DG]?)(?:$|_|\d|[A-Z])|[a-z]_?[Ll]oss$")
_MODEL_WORDS = (
    "model", "net", "network", "module", "unet", "resnet", "generator", "discriminator", "netG", "netD", "backbone",
    "student", "teacher", "encoder", "decoder", "classifier", "detector",
)  # fmt: skip
# Names that alone say which network it is.
_NETWORKS = (
    "vae", "autoencoder", "rnn", "lstm", "gru", "cnn", "mlp", "bert", "gpt", "vit", "policy", "critic", "actor",
    "transformer", "clip_model", "llm", "llama", "yolo", "u_net", "gan",
)  # fmt: skip
_MODEL = re.compile(rf"(?:^|_)(?:{'|'.join(_MODEL_WORDS)})(?:$|_|\d)|^(?:{'|'.join(_NETWORKS)})\d?$", re.IGNORECASE)
_LOADER = re.compile(r"(?:loader|(?:^|_)dl$|dataloader)", re.IGNORECASE)
_NOT_A_GRAD_SCALER = re.compile(r"(?:Standard|MinMax|Robust|MaxAbs|Quantile|Power)\w*(?:Scaler|Transformer)")
_OPTIMIZER_MODULES = ("torch.optim.", "bitsandbytes.optim.", "apex.optimizers.", "transformers.AdamW", "timm.optim.")
_SCHEDULER_METHODS = {"step", "get_last_lr", "get_lr", "state_dict", "load_state_dict"}
# What else has a step() without arguments in a training loop.
_OTHERS_WITH_STEP = (
    "self$", "opt", "prof", "ema", "engine", "trainer", "logger", "timer", "bar", "callback", "meter", "env",
    "accelerator", "tracker", "monitor", "control", "prun", "model", "net", "watch", "stat", "scaler", "teacher",
    "sampler", "clock", "progress", "agent", "state",
)  # fmt: skip
_OTHER_STEPPED = re.compile("|".join(_OTHERS_WITH_STEP), re.IGNORECASE)


def last_part(name: str | None) -> str:
    """Return the last part of a dotted name."""
    return (name or "").rpartition(".")[2]


def is_optimizer(code: Code, node: ast.AST | None) -> bool:
    """Return True if a node is an optimizer."""
    calls = _calls(code, node)
    if any(call.startswith(_OPTIMIZER_MODULES) and not call.startswith("torch.optim.lr_scheduler") for call in calls):
        return True
    if is_scheduler(code, node):
        return False
    return _OPTIMIZER.search(last_part(code.name(node))) is not None or code.name(node) in _stepped_names(code)


def is_scaler(code: Code, node: ast.AST | None) -> bool:
    """Return True if a node is a gradient scaler."""
    calls = _calls(code, node)
    if any(_NOT_A_GRAD_SCALER.search(call) for call in calls):
        return False
    if any(call.endswith("GradScaler") for call in calls):
        return True
    return _SCALER.search(last_part(code.name(node))) is not None or code.name(node) in _scaling_names(code)


def is_scheduler(code: Code, node: ast.AST | None) -> bool:
    """Return True if a node is a learning-rate scheduler."""
    if any(call.startswith("torch.optim.lr_scheduler.") or "_schedule" in call for call in _calls(code, node)):
        return True
    name = code.name(node)
    return _SCHEDULER.search(last_part(name)) is not None or name in _scheduling_names(code)


def is_accelerator(code: Code, node: ast.AST | None) -> bool:
    """Return True if a node is an Accelerator of accelerate."""
    if any(call.endswith("Accelerator") for call in _calls(code, node)):
        return True
    return "accelerator" in (code.name(node) or "").lower()


def is_loss(code: Code, node: ast.AST | None) -> bool:
    """Return True if a node is named like a loss or its backward() is called in the same function."""
    name = code.name(node)
    if name is None or node is None:
        return False
    return _LOSS.search(last_part(name)) is not None or (code.function(node), name) in _differentiated_names(code)


def is_model(code: Code, node: ast.AST | None) -> bool:
    """Return True if a node is named like a model, or is an instance of a class with a forward method."""
    name = code.name(node)
    if name is None:
        return False
    if _MODEL.search(last_part(name)):
        return True
    modules = {owner.name for owner in code.nodes(ast.ClassDef) if _has_forward(owner)}
    return any(last_part(call) in modules for call in _calls(code, node))


def is_loader(code: Code, node: ast.AST | None) -> bool:
    """Return True if a node is a DataLoader."""
    if any(call.endswith("DataLoader") for call in _calls(code, node)):
        return True
    if isinstance(node, ast.Call):
        return _LOADER.search(last_part(code.name(node.func))) is not None or _returns_loader(code, node)
    return _LOADER.search(last_part(code.name(node))) is not None


def _returns_loader(code: Code, call: ast.Call) -> bool:
    """Return True if a call is that of a function of the document whose result is a DataLoader."""
    return last_part(code.name(call.func)) in _loader_functions(code)


@lru_cache(maxsize=4)
def _loader_functions(code: Code) -> frozenset[str]:
    return frozenset(
        function.name
        for node in code.nodes(ast.Return)
        if node.value is not None and code.call_name(node.value).endswith("DataLoader")
        if (function := code.function(node)) is not None
    )


@lru_cache(maxsize=4)
def _stepped_names(code: Code) -> frozenset[str]:
    """Return the names that are optimizers because of their methods: they step and zero gradients."""
    methods: dict[str, set[str]] = defaultdict(set)
    for call in code.nodes(ast.Call):
        if isinstance(call.func, ast.Attribute) and call.func.attr in {"step", "zero_grad", "backward"}:
            methods[code.name(call.func.value) or ""].add(call.func.attr)
    names = (name for name, attributes in methods.items() if attributes == {"step", "zero_grad"})
    return frozenset(names) - {"", "self"}


@lru_cache(maxsize=4)
def _scheduling_names(code: Code) -> frozenset[str]:
    """Return the names that are schedulers because of their use: they step beside an optimizer, and do no more."""
    optimizers = _stepped_names(code)
    methods: dict[str, set[str]] = defaultdict(set)
    places: dict[str, set[object]] = defaultdict(set)
    for call in code.nodes(ast.Call) if optimizers else ():
        name = code.name(call.func.value) if isinstance(call.func, ast.Attribute) else None
        if name is not None and isinstance(call.func, ast.Attribute):
            is_plain = not (call.args or call.keywords)
            methods[name].add(call.func.attr if is_plain or call.func.attr != "step" else "step(…)")
            if call.func.attr == "step":
                places[name].add(code.function(call))
    beside = {place for name in optimizers for place in places[name]}
    return frozenset(
        name
        for name, attributes in methods.items()
        if "step" in attributes
        and attributes <= _SCHEDULER_METHODS
        and places[name] <= beside
        and name not in optimizers
        and not _OTHER_STEPPED.search(name)
        and not any(code.assignments(name, call) for call in code.nodes(ast.Call)[:1])
    )


@lru_cache(maxsize=4)
def _differentiated_names(code: Code) -> frozenset[tuple[ast.AST | None, str]]:
    """Return the names whose backward() is called without an argument, each with its function."""
    return frozenset(
        (code.function(call), name)
        for call in code.nodes(ast.Call)
        if isinstance(call.func, ast.Attribute) and call.func.attr == "backward" and not call.args
        if (name := code.name(call.func.value)) is not None
    )


@lru_cache(maxsize=4)
def _scaling_names(code: Code) -> frozenset[str]:
    """Return the names that are gradient scalers because of their methods: `s.scale(loss).backward()`."""
    names: set[str] = set()
    for call in code.nodes(ast.Call):
        func = call.func
        if not isinstance(func, ast.Attribute):
            continue
        if func.attr == "unscale_":
            names.add(code.name(func.value) or "")
        if func.attr == "backward":
            scales = (item.func for item in walk(func.value) if isinstance(item, ast.Call))
            names.update(
                code.name(item.value) or ""
                for item in scales
                if isinstance(item, ast.Attribute) and item.attr == "scale"
            )
    return frozenset(names) - {""}


def _has_forward(owner: ast.ClassDef) -> bool:
    return any(isinstance(item, ast.FunctionDef) and item.name == "forward" for item in owner.body)


def _calls(code: Code, node: ast.AST | None) -> list[str]:
    """Return the names of the functions whose results a node may hold."""
    if node is None:
        return []
    return [name for value in code.values(node) if (name := code.call_name(value))]
