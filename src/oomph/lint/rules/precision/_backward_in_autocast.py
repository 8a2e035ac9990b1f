"""Rule `backward-in-autocast`: backward or the optimizer's step run under autocast."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..._problem import Problem
from ..._rule import Rule, RuleFamily
from ...analysis import EventKind, callers, is_conditional, training_calls
from ...sources import Document
from ._autocast import enclosing_autocast


def _check(document: Document) -> Iterator[Problem]:
    code = document.code
    blocks: set[ast.Call] = set()
    for kind in (EventKind.BACKWARD, EventKind.STEP):
        seen: set[ast.Call] = set()
        for loop in document.loops:
            for event in loop.of(kind):
                block = enclosing_autocast(code, event.call)
                # A step inside goes with the backward before it.
                if block is None or event.call in seen or (kind is EventKind.STEP and block in blocks):
                    continue
                seen.add(event.call)
                blocks.add(block)
                message = (
                    f"{code.source(event.call)} runs under {code.source(block)}: close that block after the loss, "
                    "backward uses the types of the forward pass by itself"
                )
                yield Problem(code.span(event.call), message)
    yield from _check_functions(document, blocks)


def _check_functions(document: Document, blocks: set[ast.Call]) -> Iterator[Problem]:
    """Check calls under autocast of functions of the document that run backward."""
    code = document.code
    functions = {code.function(call): call for call in training_calls(code)}
    for function, backward in functions.items():
        if function is None or enclosing_autocast(code, backward) or is_conditional(code, backward, function):
            continue
        is_framed = any(isinstance(node, (ast.With, ast.AsyncWith)) for node in code.ancestors(backward))
        for call in callers(code, function) if not is_framed else ():
            block = enclosing_autocast(code, call)
            is_direct = isinstance(call.func, ast.Name) or (code.name(call.func) or "").startswith("self.")
            if block is None or block in blocks or not is_direct:
                continue
            blocks.add(block)
            message = (
                f"{code.source(call)} runs a backward under {code.source(block)}: call it after that block, backward "
                "uses the types of the forward pass by itself"
            )
            yield Problem(code.span(call), message)


BACKWARD_IN_AUTOCAST = Rule(
    "backward-in-autocast",
    RuleFamily.PRECISION,
    "Backward or the step run under autocast",
    _check,
    triggers=("autocast",),
)
