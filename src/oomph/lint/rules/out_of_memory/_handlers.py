"""Handlers that are meant for out-of-memory errors of a model."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...analysis import catches_only_oom, is_about_memory, is_broad, runs_model, walk
from ...sources import Document
from .._handler_text import handler_text


def memory_handlers(document: Document) -> Iterator[tuple[ast.Try, ast.ExceptHandler]]:
    """Yield the handlers around the run of a model that catch out-of-memory errors, alone or among others."""
    code = document.code
    for block in code.nodes(ast.Try):
        is_oom = any(catches_only_oom(code, handler) for handler in block.handlers)
        is_model = any(runs_model(code, statement) for statement in block.body)
        # A wrapper runs what it is given; its reaction shows that this uses a GPU.
        if not is_oom and not is_model and not any(_empties_cache(handler) for handler in block.handlers):
            continue
        for handler in block.handlers:
            is_meant = not is_oom and is_broad(code, handler) and is_meant_for_memory(document, handler)
            if is_meant or catches_only_oom(code, handler):
                yield block, handler


def _empties_cache(handler: ast.ExceptHandler) -> bool:
    return any(
        isinstance(node, ast.Attribute) and node.attr == "empty_cache"
        for statement in handler.body
        for node in walk(statement)
    )


def is_meant_for_memory(document: Document, handler: ast.ExceptHandler) -> bool:
    """Return True if a broad handler tests for, or reacts to, a lack of memory."""
    return is_about_memory(document.code, handler, handler_text(document, handler))
