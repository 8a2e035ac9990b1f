"""Rule `broad-oom-except`: any error is taken for a lack of memory."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..._problem import Problem
from ..._rule import Rule, RuleFamily
from ...analysis import catches_only_oom, is_broad, looks_at_exception, walk
from ...sources import Document
from ._handlers import memory_handlers

_ENDS = {"sys.exit", "exit", "quit", "os._exit", "pytest.fail", "pytest.skip", "self.fail", "self.skipTest"}


def _check(document: Document) -> Iterator[Problem]:
    code = document.code
    for _, handler in memory_handlers(document):
        if catches_only_oom(code, handler) or not is_broad(code, handler):
            continue
        if looks_at_exception(code, handler) or _always_raises(handler):
            continue
        caught = "a bare except" if handler.type is None else f"except {code.source(handler.type)}"
        message = (
            f"{caught} takes every error for a lack of memory, a wrong shape too: catch torch.cuda.OutOfMemoryError "
            'or raise again unless the message has "out of memory"'
        )
        yield Problem(code.span(handler), message)


def _always_raises(handler: ast.ExceptHandler) -> bool:
    """Return True if the handler ends with a raise or the end of the program or test, so that it hides nothing."""
    last = handler.body[-1]
    if isinstance(last, ast.Raise):
        return True
    return any(isinstance(node, ast.Call) and ast.unparse(node.func) in _ENDS for node in walk(last))


BROAD_OOM_EXCEPT = Rule(
    "broad-oom-except",
    RuleFamily.OUT_OF_MEMORY,
    "Any error is taken for a lack of memory",
    _check,
    triggers=("except",),
)
