"""Training loops: where gradients are computed, scaled, clipped, applied and zeroed, and how they are accumulated."""

from __future__ import annotations

import ast
import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from ._arguments import passed_value
from ._code import Code, Function, Loop, walk
from ._roles import is_optimizer, is_scaler, is_scheduler

Region = Loop | Function | ast.Module
KnownEvents = dict[tuple[ast.AST, int], tuple["Event", ...]]  # by region and piece
_CLIP_NAMES = ("clip_grad_norm_", "clip_grad_value_", "clip_grad_norm", "clip_grads_with_norm_")

# Functions, and gradients that are kept apart from the parameters.
_FUNCTIONS = {"torch.autograd.backward", "torch.distributed.autograd.backward"}
_PROTOCOL = {"backward", "manual_backward", "forward", "training_step", "closure", "__call__"}
_MAX_FLAGS = 2  # flags whose value is another flag


@dataclass(frozen=True)
class _Helpers:
    """Functions of a document that do a part of a training step for their callers, by name.

    Attributes:
        backward: Functions that compute gradients once and leave the step to their caller.
        step: Methods that step the optimizer with gradients that their caller has computed.
    """

    backward: Mapping[str, Function]
    step: Mapping[str, Function]


class EventKind(enum.Enum):
    """Something that a training loop does with gradients."""

    BACKWARD = "backward"
    UNSCALE = "unscale"
    CLIP = "clip"
    STEP = "step"
    SCALER_UPDATE = "scaler update"
    SCHEDULER_STEP = "scheduler step"
    ZERO_GRAD = "zero grad"


@dataclass(frozen=True)
class Event:
    """A call in a training loop.

    Attributes:
        kind: What it does.
        call: The call.
        subject: What it acts on, as written: the loss of a backward, the optimizer of a step or unscale, the
            scheduler, the receiver of zero_grad, the first argument of a clip; empty if it has no simple name.
        scaler: The gradient scaler that the call goes through, as written; None without one.
        helper: The function of this document that the call runs and that computes the gradients; None if the call
            itself does.
    """

    kind: EventKind
    call: ast.Call
    subject: str
    scaler: str | None = None
    helper: Function | None = None


@dataclass(frozen=True)
class Accumulation:
    """The condition under which a loop steps its optimizer: every k-th iteration.

    Attributes:
        branch: The `if` statement. Its body steps, or it skips the rest of the iteration with `continue`.
        test: The comparison with the modulo, or of the counter with k.
        counter: The counter: `i`, `i + 1`, `self.calls`.
        every: k; None if unknown.
        skips: True if the `if` contains `continue` instead of the step.
    """

    branch: ast.If
    test: ast.expr
    counter: ast.expr
    every: ast.expr | None
    skips: bool = False


@dataclass(frozen=True)
class TrainingLoop:
    """Code that runs backward.

    Attributes:
        node: The innermost loop around backward; the function or module if there is none.
        update: The innermost loop (or else function or module) that contains backward and an optimizer's step; equals
            `node` unless micro-batches have their own inner loop.
        events: All events in `update`, in source order.
        accumulation: The condition of the step; None if the optimizer steps in every iteration, or if micro-batches
            have their own loop.
    """

    node: Region
    update: Region
    events: tuple[Event, ...]
    accumulation: Accumulation | None

    @property
    def has_micro_loop(self) -> bool:
        """True if micro-batches have their own loop inside the one that steps."""
        return self.node is not self.update

    def of(self, kind: EventKind) -> tuple[Event, ...]:
        """Return the events of a kind."""
        return tuple(event for event in self.events if event.kind is kind)


def find_training_loops(code: Code) -> tuple[TrainingLoop, ...]:
    """Return the training loops of a document, each once."""
    loops: dict[tuple[Region, int | None], TrainingLoop] = {}
    helpers = _find_helpers(code)
    known: KnownEvents = {}
    for call in code.nodes(ast.Call):
        is_helped = bool(helpers.backward) and _helper_backward(code, call, helpers.backward) is not None
        if _is_backward(code, call) or (is_helped and next(code.loops_around(call), None) is not None):
            region = next(code.loops_around(call), None) or code.function(call) or code.tree
            key = region, code.piece(call) if region is code.tree else None
            if key not in loops:
                loops[key] = _training_loop(code, region, code.piece(call), helpers, known)
    return tuple(loops.values())


def events_in(code: Code, region: ast.AST) -> Iterator[Event]:
    """Yield the events in a region, in source order; nested functions are not part of it."""
    for node in walk(region):
        event = _event(code, node) if isinstance(node, ast.Call) else None
        if event is not None:
            yield event


def _events_with_helpers(code: Code, region: ast.AST, helpers: _Helpers) -> Iterator[Event]:
    """Yield the events in a region; those in a helper have the place of its call."""
    for node in walk(region):
        if not isinstance(node, ast.Call):
            continue
        event = _event(code, node) or (_helper_backward(code, node, helpers.backward) if helpers.backward else None)
        if event is not None:
            yield event
        elif (stepper := _called_stepper(code, node, helpers.step)) is not None:
            inner = (item for item in events_in(code, stepper) if item.kind is not EventKind.CLIP)
            yield from (replace(item, call=node) for item in inner)


def _called_stepper(code: Code, call: ast.Call, steppers: Mapping[str, Function]) -> Function | None:
    owner, _, last = (code.name(call.func) or "").rpartition(".")
    stepper = steppers.get(last) if owner == "self" else None
    return stepper if stepper is not None and not code.is_inside(call, stepper) else None


def _find_helpers(code: Code) -> _Helpers:
    return _Helpers(_find_backward_helpers(code), _find_steppers(code))


def _find_steppers(code: Code) -> dict[str, Function]:
    """Return the methods that step an attribute's optimizer, and compute no gradients."""
    steppers: dict[str, Function] = {}
    for function in code.functions:
        if function.name in _PROTOCOL or not isinstance(code.parent(function), ast.ClassDef):
            continue
        events = list(events_in(code, function))
        steps = [event for event in events if event.kind is EventKind.STEP]
        is_own = bool(steps) and all(event.subject.startswith("self.") for event in steps)
        if is_own and not any(event.kind is EventKind.BACKWARD for event in events):
            steppers[function.name] = function
    return steppers


def _find_backward_helpers(code: Code) -> dict[str, Function]:
    """Return the functions of a document that compute gradients once and leave the step to their caller."""
    helpers: dict[str, Function] = {}
    seen: set[Function] = set()
    for call in code.nodes(ast.Call):
        function = code.function(call) if _is_backward(code, call) else None
        if function is None or function in seen or function.name in _PROTOCOL or function.name in helpers:
            continue
        seen.add(function)
        kinds = [event.kind for event in events_in(code, function)]
        if EventKind.STEP not in kinds and kinds.count(EventKind.BACKWARD) == 1:
            helpers[function.name] = function
    return helpers


def _helper_backward(code: Code, call: ast.Call, helpers: Mapping[str, Function]) -> Event | None:
    """Return the event of a call that runs backward in a function of the same document."""
    name = code.name(call.func) or ""
    head, _, last = name.rpartition(".")
    helper = helpers.get(last)
    is_method = helper is not None and isinstance(code.parent(helper), ast.ClassDef)
    if helper is None or (is_method and head != "self") or (not is_method and head) or code.is_inside(call, helper):
        return None
    inner = next(event for event in events_in(code, helper) if event.kind is EventKind.BACKWARD)
    scaler = inner.scaler
    if scaler in {argument.arg for argument in helper.args.args}:
        scaler = code.name(passed_value(code, helper, call, scaler or ""))
    return Event(EventKind.BACKWARD, call, "", scaler, helper)


def _training_loop(code: Code, region: Region, piece: int, helpers: _Helpers, known: KnownEvents) -> TrainingLoop:
    """Return the loop of a region; `known` has the events of regions that were searched before."""
    update = region
    events = _piece_events(code, region, piece, helpers)
    for outer in (*code.loops_around(region), code.function(region) or code.tree):
        if any(event.kind is EventKind.STEP for event in events):
            break
        if (outer, piece) not in known:
            known[outer, piece] = _piece_events(code, outer, piece, helpers)
        wider = known[outer, piece]
        if any(event.kind is EventKind.STEP for event in wider):
            update, events = outer, wider
    accumulation = _find_accumulation(code, update, events) if update is region else None
    return TrainingLoop(region, update, events, accumulation)


def _piece_events(code: Code, region: Region, piece: int, helpers: _Helpers) -> tuple[Event, ...]:
    """Return the events in a region; at the top level those of one piece, because other fences may be alternatives."""
    events = _events_with_helpers(code, region, helpers)
    return tuple(event for event in events if region is not code.tree or code.piece(event.call) == piece)


def _is_backward(code: Code, call: ast.Call) -> bool:
    func = call.func
    if not isinstance(func, ast.Attribute):
        return False
    if func.attr == "manual_backward":
        return True
    return func.attr == "backward" and code.resolve(func) not in _FUNCTIONS and not _is_super(func.value)


def _is_super(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"


def _event(code: Code, call: ast.Call) -> Event | None:
    func = call.func
    last = code.call_name(call).rpartition(".")[2]
    if last in _CLIP_NAMES:
        return Event(EventKind.CLIP, call, _argument_name(code, call))
    if not isinstance(func, ast.Attribute):
        return None
    if _is_backward(code, call):
        return _backward(code, call, func)
    if func.attr == "step":
        return _step(code, call, func)
    if func.attr == "unscale_":
        return Event(EventKind.UNSCALE, call, _argument_name(code, call), code.name(func.value))
    if func.attr == "update" and is_scaler(code, func.value):
        return Event(EventKind.SCALER_UPDATE, call, "", code.name(func.value))
    if func.attr == "zero_grad":
        return Event(EventKind.ZERO_GRAD, call, code.name(func.value) or "")
    return None


def _backward(code: Code, call: ast.Call, func: ast.Attribute) -> Event:
    """Return the event of `loss.backward()`, `scaler.scale(loss).backward()` or `accelerator.backward(loss)`."""
    receiver = func.value
    if isinstance(receiver, ast.Call) and isinstance(receiver.func, ast.Attribute) and receiver.func.attr == "scale":
        return Event(EventKind.BACKWARD, call, _argument_name(code, receiver), code.name(receiver.func.value))
    if call.args and code.name(receiver) is not None:
        return Event(EventKind.BACKWARD, call, _argument_name(code, call))
    return Event(EventKind.BACKWARD, call, code.name(receiver) or "")


def _step(code: Code, call: ast.Call, func: ast.Attribute) -> Event | None:
    is_given_optimizer = len(call.args) == 1 and is_optimizer(code, call.args[0])
    if is_scaler(code, func.value) or (is_given_optimizer and not is_scheduler(code, func.value)):
        return Event(EventKind.STEP, call, _argument_name(code, call), code.name(func.value) or "scaler")
    if is_scheduler(code, func.value):
        return Event(EventKind.SCHEDULER_STEP, call, code.name(func.value) or "")
    if is_optimizer(code, func.value):
        return Event(EventKind.STEP, call, code.name(func.value) or "")
    return None


def _argument_name(code: Code, call: ast.Call) -> str:
    return (code.name(call.args[0]) or "") if call.args else ""


def _find_accumulation(code: Code, region: Region, events: tuple[Event, ...]) -> Accumulation | None:
    """Return the condition around the optimizer's step, or the `continue` before it."""
    for event in events:
        if event.kind is not EventKind.STEP:
            continue
        for outer in code.ancestors(event.call):
            if outer is region:
                break
            if isinstance(outer, ast.If) and (found := _condition(code, outer.test, negated=False)) is not None:
                return Accumulation(outer, *found)
    for node in walk(region):
        if isinstance(node, ast.If) and any(isinstance(item, ast.Continue) for item in node.body):
            found = _condition(code, node.test, negated=True)
            if found is not None:
                return Accumulation(node, *found, skips=True)
    if not any(event.kind is EventKind.STEP for event in events):
        return _find_elided(code, region, events)
    return None


def _find_elided(code: Code, region: Region, events: tuple[Event, ...]) -> Accumulation | None:
    """Return the condition of a step that a snippet shortens to `...`, if the loss is divided by the same number."""
    pieces = {code.piece(event.call) for event in events}
    divisors = {ast.dump(node.right) for node in code.nodes(ast.BinOp) if isinstance(node.op, ast.Div)}
    for node in walk(region):
        is_elided = isinstance(node, ast.If) and all(_is_ellipsis(item) for item in node.body)
        if not isinstance(node, ast.If) or not is_elided or code.piece(node) not in pieces:
            continue
        found = _condition(code, node.test, negated=False)
        if found is not None and found[2] is not None and ast.dump(found[2]) in divisors:
            return Accumulation(node, *found)
    return None


def _is_ellipsis(statement: ast.stmt) -> bool:
    value = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(value, ast.Constant) and value.value is Ellipsis


def _condition(
    code: Code, test: ast.expr, *, negated: bool, depth: int = 0
) -> tuple[ast.expr, ast.expr, ast.expr | None] | None:
    """Return test, counter and k of `(i + 1) % k == 0`, `not i % k`, `count == k` or a flag with such a value."""
    for node in _operands(test):
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            if (parts := _modulo(node.operand)) is not None:
                return node, *parts
            continue
        if isinstance(node, ast.Name):
            for value in code.values(node) if depth < _MAX_FLAGS else ():
                if condition := _condition(code, value, negated=negated, depth=depth + 1):
                    return condition
            continue
        if (parts := _modulo(node)) is not None and (negated or isinstance(node, ast.Compare)):
            return node, *parts
        if (parts := _count(code, node, (ast.Lt, ast.NotEq) if negated else (ast.Eq, ast.GtE))) is not None:
            return node, *parts
    return None


def _operands(test: ast.expr) -> Iterator[ast.expr]:
    if isinstance(test, ast.BoolOp):
        for value in test.values:
            yield from _operands(value)
    else:
        yield test


def _modulo(node: ast.expr) -> tuple[ast.expr, ast.expr] | None:
    if isinstance(node, ast.Compare):
        return next((parts for side in (node.left, *node.comparators) if (parts := _modulo(side))), None)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and not isinstance(node.left, ast.Constant):
        return node.left, node.right
    return None


def _count(code: Code, node: ast.expr, operators: tuple[type[ast.cmpop], ...]) -> tuple[ast.expr, ast.expr] | None:
    """Return counter and k of `count == k`, where a name says that it accumulates or the counter starts again."""
    if not (isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], operators)):
        return None
    left, right = node.left, node.comparators[0]
    is_named = "accum" in ast.unparse(right).lower() or "accum" in ast.unparse(left).lower()
    return (left, right) if is_named or _starts_again(code, left) else None


def _starts_again(code: Code, counter: ast.expr) -> bool:
    """Return True if a counter is set to 0 in more than one place, and increased or set under its own condition."""
    name = code.name(counter)
    assignments = code.assignments(name, counter) if name is not None else []
    resets = [item for item in assignments if isinstance(item.value, ast.Constant) and item.value.value == 0]
    branch = next((outer for outer in code.ancestors(counter) if isinstance(outer, ast.stmt)), None)
    is_increased = any(item.kind == "+=" for item in assignments)
    return len(resets) > 1 and (is_increased or any(code.parent(item.statement) is branch for item in resets))
