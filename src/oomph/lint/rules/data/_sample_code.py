"""Code that runs for every sample of a data set, and how messages show it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...analysis import Code
from ...sources import Document

_MAX_CHARS = 70


def sample_regions(document: Document, *, only_kept: bool = False) -> Iterator[ast.AST]:
    """Yield the functions of datasets, and the loops and comprehensions over all files.

    Args:
        document: The document.
        only_kept: Leave out loops that keep no images, such as those that predict.
    """
    yield from document.loading_functions
    if only_kept:
        for place in document.images.collections():
            yield place
            yield from document.code.loops_around(place)
        return
    covers_all = document.images.files.covers_all
    yield from (loop for loop in document.code.nodes(ast.For) if covers_all(loop.iter))
    for node in (*document.code.nodes(ast.ListComp), *document.code.nodes(ast.GeneratorExp)):
        assert isinstance(node, (ast.ListComp, ast.GeneratorExp))  # noqa: S101  for the type checker
        if any(covers_all(generator.iter) for generator in node.generators):
            yield node


def short_source(code: Code, node: ast.AST) -> str:
    """Return the source of a node for a message that must not be long."""
    text = code.source(node)
    return text if len(text) <= _MAX_CHARS else f"{text[: _MAX_CHARS - 1]}…"
