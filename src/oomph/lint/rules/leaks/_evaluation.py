"""Evaluation loops: code that runs a model to measure or predict, not to train."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from ...analysis import (
    Code,
    Function,
    Loop,
    called_model,
    callers,
    calls_of,
    defined_decorator,
    is_loader,
    is_optimizer,
    iterates_over_loader,
    last_part,
    loop_sources,
    model_calls,
    training_calls,
    training_regions,
    walk,
)
from ._inference import collects_features, predicts_with_loaded_weights

_EVALUATION_WORDS = (
    "val", "valid", "validate", "validation", "validating", "test", "testing", "eval", "evaluate", "evaluation",
    "predict", "prediction", "predictions", "infer", "inference", "score_model", "get_accuracy", "check_accuracy",
    "compute_accuracy",
)  # fmt: skip
_EVALUATION_NAME = re.compile(rf"(?:^|_)(?:{'|'.join(_EVALUATION_WORDS)})(?:$|_|\d)", re.IGNORECASE)
_EVALUATION_DATA_PARTS = (
    r"(?:^|_)(?:val|valid|validation|test|eval|evaluation|holdout|dev)(?:$|_|\d|loader|dl$|set$|data|ds$|iter)",
    r"(?:^|_)(?:val|valid|validation|test|eval|evaluation|holdout|dev)batches",
    r"(?:val|valid|test|eval)_?(?:data)?_?loader",
    r"^(?:vl|vdl|va|te|tst)$",
)
_EVALUATION_DATA = re.compile("|".join(_EVALUATION_DATA_PARTS), re.IGNORECASE)
_COMPREHENSIONS = (ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp)
_TRAIN_NAME = re.compile(
    r"train|(?:^|_)fit(?:$|_)|attack|adversarial|saliency|grad|distill|calib|explain|attribut", re.IGNORECASE
)
# Frameworks call these with gradients off and in evaluation mode; forward is part of a model.
_FRAMEWORK_METHODS = {
    "validation_step", "test_step", "predict_step", "prediction_step", "forward", "__call__", "training_step",
    "compute_loss", "evaluation_step", "shared_step", "_shared_step", "_step", "eval_step", "prediction_loop",
}  # fmt: skip
_TRAINING_FUNCTION = re.compile(r"train|(?:^|_)fit(?:$|_)", re.IGNORECASE)
_TRAINING_PARTS = {"backward", "manual_backward", "zero_grad", "criterion_backward", "train_step", "training_step"}
_NOT_EVALUATION = re.compile(r"train|(?:^|_)bn(?:$|_)|calib|batch_?norm|stat", re.IGNORECASE)
_OTHER_FRAMEWORKS = ("tensorflow", "keras", "jax", "flax", "mxnet", "paddle", "onnxruntime", "sklearn", "mlx")
# Models whose call switches gradients off and evaluates by itself.
_HAS_ITS_MODE = re.compile(
    r"(?:^|\.)(?:YOLO\w*|RTDETR|SAM|pipeline|SentenceTransformer|InferenceSession|Pipeline|\w+Pipeline)\b"
)
# Pipelines of diffusers and transformers are given models in evaluation mode, and switch gradients off at their door.
_MODULE_BASE = re.compile(r"(?:Module|Model|Net|Head|Detector|Encoder|Decoder|Backbone|Transformer|Layer|Pipeline)$")
_FORWARD_METHOD = re.compile(r"\.(?:forward\w*|extract_features|encode_(?:image|text)|get_(?:image|text)_features)$")
_MODE_BLOCK = re.compile(r"eval|inference(?!_mode)", re.IGNORECASE)
_MODE_FUNCTION = re.compile(r"eval|mode", re.IGNORECASE)
_GRADIENT_USE = re.compile(r"requires_grad|autograd|\.grad\b|retain_grad|enable_grad|create_graph")


@dataclass(frozen=True)
class EvaluationLoop:
    """A loop, or a function without one, that runs a model and computes no gradients.

    Attributes:
        node: The innermost loop or comprehension around the model's call; the function if there is none, at the top
            level the statement.
        call: The call of the model.
        model: The model as written.
        is_named: True if the name of the function or of the data says that it evaluates, if its code shows it, or if
            the document trains nothing.
        is_implied: True if only the lack of any training says so.
    """

    node: ast.AST
    call: ast.Call
    model: str
    is_named: bool
    is_implied: bool = False


@lru_cache(maxsize=4)
def evaluation_loops(code: Code) -> tuple[EvaluationLoop, ...]:
    """Return the evaluation loops of a document, each once."""
    if _is_other_framework(code):
        return ()
    loops: dict[ast.AST, EvaluationLoop] = {}
    for call in sorted(model_calls(code), key=lambda call: (call.lineno, call.col_offset)):
        loop = _evaluation_loop(code, call)
        if loop is not None and loop.node not in loops:
            loops[loop.node] = loop
    return tuple(loops.values())


def _evaluation_loop(code: Code, call: ast.Call) -> EvaluationLoop | None:
    function = code.function(call)
    if function is not None and (_is_framework_method(code, call, function) or _is_pytest(code, function)):
        return None
    if isinstance(code.scope(call), ast.Lambda) or _is_in_module(code, call):
        return None
    node: ast.AST | None = _comprehension(code, call) or _batch_loop(code, call) or function
    if node is None and training_calls(code):
        node = code.statement(call)  # an inference after the training, at the top level
    if node is None or node in training_regions(code):
        return None
    model = code.name(called_model(call)) or ""
    if function is not None and _uses_gradients(function):
        return None
    # A function named for its training may evaluate as well.
    if (
        function is not None
        and _TRAIN_NAME.search(function.name)
        and not (_TRAINING_FUNCTION.search(function.name) and _is_over_evaluation_data(code, node))
    ):
        return None
    if any(_HAS_ITS_MODE.search(code.call_name(value)) for value in code.values(called_model(call))):
        return None
    is_named = _is_named(code, node, function) or _measures(code, node, function) or _is_shown(code, node, call)
    is_implied = not is_named and _is_implied(code, node)
    return EvaluationLoop(node, call, _FORWARD_METHOD.sub("", model), is_named or is_implied, is_implied)


def _is_framework_method(code: Code, call: ast.Call, function: Function) -> bool:
    """Return True if a framework calls the function for one batch; an evaluator's `__call__` has its own loop."""
    has_loop = function.name == "__call__" and next(code.loops_around(call), None) is not None
    return function.name in _FRAMEWORK_METHODS and not has_loop


def _is_in_module(code: Code, call: ast.Call) -> bool:
    """Return True in a method of a model or pipeline: who calls it decides about gradients and mode."""
    owner = code.class_of(call)
    if owner is None:
        return False
    has_forward = any(isinstance(item, ast.FunctionDef) and item.name == "forward" for item in owner.body)
    is_registered = any("register" in ast.unparse(decorator) for decorator in owner.decorator_list)
    return has_forward or is_registered or any(_MODULE_BASE.search(ast.unparse(base)) for base in owner.bases)


def _batch_loop(code: Code, call: ast.Call) -> Loop | None:
    """Return the innermost loop over data; loops over models, layers or parts of a batch are part of its body."""
    head = (code.name(called_model(call)) or "").partition(".")[0]
    loops = [loop for loop in code.loops_around(call) if not _binds(loop, head)]
    for loop in loops:
        if iterates_over_loader(code, loop) or any(
            _says_evaluation(code, source) for source in loop_sources(code, loop)
        ):
            return loop
    return loops[0] if loops else None


def _binds(loop: Loop, name: str) -> bool:
    """Return True if a name is a variable of a loop."""
    if isinstance(loop, ast.While):
        return False
    return any(isinstance(item, ast.Name) and item.id == name for item in walk(loop.target))


def _comprehension(code: Code, call: ast.Call) -> ast.AST | None:
    """Return the comprehension over data that calls the model."""
    for outer in code.ancestors(call):
        if isinstance(outer, ast.stmt):
            return None
        if isinstance(outer, _COMPREHENSIONS) and any(
            is_loader(code, source) or _says_evaluation(code, source)
            for source in loop_sources(code, outer.generators[0])
        ):
            return outer
    return None


def _is_named(code: Code, node: ast.AST, function: Function | None) -> bool:
    sources = list(loop_sources(code, node.generators[0] if isinstance(node, _COMPREHENSIONS) else node))
    if any(_says_evaluation(code, source) for source in sources):
        return True
    if any(_says_training(code, source) for source in sources):
        return False
    return function is not None and _EVALUATION_NAME.search(function.name) is not None


def _is_shown(code: Code, node: ast.AST, call: ast.Call) -> bool:
    """Return True if the code shows that a loop predicts, over data that isn't named for training."""
    sources = loop_sources(code, node.generators[0] if isinstance(node, _COMPREHENSIONS) else node)
    if any(_says_training(code, source) for source in sources):
        return False
    return collects_features(code, node, call) or predicts_with_loaded_weights(code, node, call)


def _is_over_evaluation_data(code: Code, node: ast.AST) -> bool:
    sources = loop_sources(code, node.generators[0] if isinstance(node, _COMPREHENSIONS) else node)
    return any(_says_evaluation(code, source) for source in sources)


def _measures(code: Code, node: ast.AST, function: Function | None) -> bool:
    """Return True if a loop over batches compares predictions with labels, and has nothing to do with training."""
    sources = list(loop_sources(code, node.generators[0] if isinstance(node, _COMPREHENSIONS) else node))
    if not (any(is_loader(code, source) for source in sources) or _binds_batch(code, node)):
        return False
    if any(_says_training(code, item) for item in sources):
        return False
    names = {last_part(code.name(item)) for item in walk(node) if isinstance(item, (ast.Name, ast.Attribute))}
    if names & _TRAINING_PARTS or any(is_optimizer(code, item) for item in walk(node) if isinstance(item, ast.Name)):
        return False
    trains = {item.name for item in training_regions(code) if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef))}
    if names & trains or (function is not None and _NOT_EVALUATION.search(function.name)):
        return False
    return any(_is_hit(code, item) for item in walk(node))


def _binds_batch(code: Code, node: ast.AST) -> bool:
    """Return True for `for x, y in data` whose x goes to a model, where the document trains with such a loop too."""
    if not isinstance(node, (ast.For, ast.AsyncFor)) or not isinstance(node.target, ast.Tuple):
        return False
    names = {item.id for item in walk(node.target) if isinstance(item, ast.Name)}
    inputs = {
        item.id
        for call in model_calls(code)
        if code.is_inside(call, node)
        for argument in call.args
        for item in walk(argument)
        if isinstance(item, ast.Name)
    }
    return bool(names & inputs) and any(
        isinstance(item, (ast.For, ast.AsyncFor)) and ast.dump(item.target) == ast.dump(node.target)
        for item in training_regions(code)
    )


def _is_hit(code: Code, node: ast.AST) -> bool:
    """Return True for `out.argmax(1) == y` and `pred.eq(y)`, which count right predictions."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.Eq):
        sides = [node.left, *node.comparators]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "eq":
        sides = [node.func.value]
    else:
        return False
    values = [value for side in sides for value in (side, *code.values(side))]
    return any(isinstance(item, ast.Attribute) and item.attr == "argmax" for value in values for item in walk(value))


def _is_implied(code: Code, node: ast.AST) -> bool:
    """Return True if nothing is trained at all, so that a loop over batches predicts.

    A loop that computes a loss may be an incomplete training.
    """
    sources = loop_sources(code, node.generators[0] if isinstance(node, _COMPREHENSIONS) else node)
    is_over_batches = any(is_loader(code, source) for source in sources) and not training_calls(code)
    return is_over_batches and "loss" not in ast.unparse(node)


def _says_evaluation(code: Code, source: ast.expr) -> bool:
    return _EVALUATION_DATA.search(_data_name(code, source)) is not None


def _says_training(code: Code, source: ast.expr) -> bool:
    return re.search("train|calib", _data_name(code, source), re.IGNORECASE) is not None


def _data_name(code: Code, source: ast.expr) -> str:
    """Return the name of what a loop iterates over: `val` of `loaders["val"]`, `val_dataloader` of its call."""
    if isinstance(source, ast.Subscript):
        key = source.slice
        return str(key.value) if isinstance(key, ast.Constant) else _data_name(code, source.value)
    if isinstance(source, ast.Call):
        return last_part(code.name(source.func))
    return last_part(code.name(source))


def _is_pytest(code: Code, function: Function) -> bool:
    """Return True for a test of code: `def test_shapes(): …` without a loader."""
    if not function.name.startswith("test"):
        return False
    return not any(iterates_over_loader(code, node) for node in walk(function) if isinstance(node, ast.For))


@lru_cache(maxsize=256)
def _uses_gradients(function: Function) -> bool:
    """Return True if a function needs gradients for something else, such as an attack or a saliency map."""
    return _GRADIENT_USE.search(ast.unparse(function)) is not None


def _is_other_framework(code: Code) -> bool:
    heads = {full.partition(".")[0] for full in code.aliases.values()}
    return "torch" not in heads and bool(heads & set(_OTHER_FRAMEWORKS))


def mode_before(code: Code, node: ast.AST, model: str) -> bool | None:
    """Return True if the last switch before a node in its function is eval(), False if train(), None without one."""
    function = code.function(node)
    last: tuple[tuple[int, int], bool] | None = None
    for call, is_eval in _mode_switches(code):
        position = (call.lineno, call.col_offset)
        if position >= _position(node) and not code.is_inside(call, node):
            continue
        if code.function(call) is not function or (not is_eval and _owner(code, call) != model):
            continue
        if last is None or position > last[0]:
            last = (position, is_eval)
    return last[1] if last else None


def mode_of_callers(code: Code, node: ast.AST, model: str) -> Iterator[bool | None]:
    """Yield the mode before each call of the function around a node."""
    function = code.function(node) if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) else node
    if function is None:
        return
    for call in callers(code, function):
        yield mode_before(code, call, model)


@lru_cache(maxsize=4)
def _mode_switches(code: Code) -> tuple[tuple[ast.Call, bool], ...]:
    """Return all calls and blocks that switch the mode, with True for those that switch to evaluation."""
    calls = (call for call in calls_of(code, "eval") if isinstance(call.func, ast.Attribute) and not call.args)
    switches = [(call, True) for call in calls]
    for call in calls_of(code, "train"):
        if isinstance(call.func, ast.Attribute) and not call.keywords and len(call.args) <= 1:
            is_eval = bool(call.args) and code.constant(call.args[0]) is not True
            if not (call.args and _is_former_mode(code, call.args[0])):
                switches.append((call, is_eval))
    return (*switches, *((call, True) for call in (*_mode_blocks(code), *_calls_of_setters(code))))


def _calls_of_setters(code: Code) -> Iterator[ast.Call]:
    """Yield the calls of functions that only switch a model to evaluation, such as `monte_carlo_mode(model)`."""
    for call in calls_of(code, "eval"):
        function = code.function(call)
        model = code.name(call.func.value) if isinstance(call.func, ast.Attribute) else None
        if function is None or model not in {argument.arg for argument in function.args.args}:
            continue
        is_run = any(code.function(run) is function for run in model_calls(code))
        trained = {_owner(code, other) for other in calls_of(code, "train") if code.function(other) is function}
        if not is_run and model not in trained:
            yield from callers(code, function)


def _mode_blocks(code: Code) -> Iterator[ast.Call]:
    """Yield calls such as `eval_mode(model)` in `with eval_mode(model):` or `stack.enter_context(eval_mode(model))`."""
    contexts = [item.context_expr for node in code.nodes(ast.With) for item in node.items]
    contexts += [argument for call in calls_of(code, "enter_context") for argument in call.args]
    for context in contexts:
        if isinstance(context, ast.Call) and context.args and _MODE_BLOCK.search(last_part(code.name(context.func))):
            yield context


def _is_former_mode(code: Code, node: ast.expr) -> bool:
    """Return True for `was` after `was = model.training`: it gives the model its former mode back."""
    values = [node, *code.values(node)]
    return any(isinstance(value, ast.Attribute) and value.attr == "training" for value in values)


def _owner(code: Code, call: ast.Call) -> str:
    return code.name(call.func.value) or "" if isinstance(call.func, ast.Attribute) else ""


def is_class_switched(code: Code, node: ast.AST) -> bool:
    """Return True if the class around a node switches its model to evaluation when it is made, and never back."""
    owner = code.class_of(node)
    if owner is None:
        return False
    switches = [(call, is_eval) for call, is_eval in _mode_switches(code) if code.class_of(call) is owner]
    places = [function.name for call, _ in switches if (function := code.function(call)) is not None]
    return "__init__" in places and all(is_eval for _, is_eval in switches)


def has_evaluation_switch(code: Code, node: ast.AST, model: str) -> bool:
    """Return True if a switch may run before a node: at the top level, in its class, its function or a caller."""
    function = node if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) else code.function(node)
    if function is None:
        return any(is_eval and code.function(call) is None for call, is_eval in _mode_switches(code))
    makers = [maker for item in function.decorator_list for maker in defined_decorator(code, item)]
    if any(is_eval and code.is_inside(call, maker) for maker in makers for call, is_eval in _mode_switches(code)):
        return True
    around = {code.function(call) for call in callers(code, function)}
    around |= {code.function(call) for outer in around if outer is not None for call in callers(code, outer)}
    owner = code.class_of(function)
    for call, is_eval in _mode_switches(code):
        place = code.function(call)
        if place is None and not around and last_part(_owner(code, call)) != last_part(model):
            continue  # another model of the top level, and nothing calls the function with it
        if place is not None and place not in {function, *around} and _serves_others(code, call, place, model):
            continue
        if is_eval and (place in {function, None} or place in around or (owner and code.class_of(call) is owner)):
            return True
    # Functions such as `set_mode(model, "eval")` in another file.
    return any(
        _MODE_FUNCTION.search(ast.unparse(call.func))
        for name in ("switch_to_eval", "set_eval", "to_eval", "eval_mode", "set_mode")
        for call in calls_of(code, name)
    )


def _serves_others(code: Code, switch: ast.Call, place: Function, model: str) -> bool:
    """Return True if a switch in another method is that of another model, or is for this method's own prediction."""
    if not model.startswith("self."):
        return False
    owner, statement = _owner(code, switch), code.statement(switch)
    target = code.name(statement.targets[0]) if isinstance(statement, ast.Assign) else None
    kept = target or owner
    if kept.startswith("self.") and kept != model and not model.startswith(f"{kept}."):
        # Two names of one model: `self.net = self.model`.
        items = [item for name in (kept, model) for item in code.assignments(name, switch) if item.value is not None]
        values = [_base(item.value) for item in items if item.value is not None]
        return len(set(values)) == len(values) and not {kept, model} & set(values)
    if owner != model:
        return False
    runs = [call for call in model_calls(code) if code.function(call) is place and code.name(call.func) == model]
    return any(call.lineno >= switch.lineno for call in runs)


def _base(node: ast.expr) -> str:
    """Return what an expression is made of, without the methods that are called on it: `net` of `net.to(device)`."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not node.keywords:
        node = node.func.value
    return ast.unparse(node)


def _position(node: ast.AST) -> tuple[int, int]:
    return int(getattr(node, "lineno", 0)), int(getattr(node, "col_offset", 0))
