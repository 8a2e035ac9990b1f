"""Rule `keras-sequence-init`: a Keras Sequence or PyDataset whose constructor skips the base class."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..._problem import Edit, Problem, Span
from ..._rule import Rule, RuleFamily
from ...analysis import Code, Function, method_of
from ...sources import Document, split_lines

_BASES = (
    "keras.utils.Sequence",
    "keras.utils.PyDataset",
    "keras.utils.data_utils.Sequence",
    "utils.all_utils.Sequence",
)


def _check(document: Document) -> Iterator[Problem]:
    code = document.code
    classes = {owner.name: owner for owner in code.nodes(ast.ClassDef)}
    for owner in classes.values():
        method = method_of(owner, "__init__")
        if method is None or not _is_sequence(code, owner, classes):
            continue
        if _calls_base(method):
            continue
        call = f"super().__init__({_options(method)})"
        message = (
            f"{owner.name}.__init__ doesn't call {call}: Keras 3 warns and ignores workers, use_multiprocessing and "
            "max_queue_size; call it first"
        )
        yield Problem(_header(code, owner), message, _edits(document, owner, method, call))


def _is_sequence(code: Code, owner: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> bool:
    """Return True if a class, or one of its bases in the document, derives from a Sequence of Keras."""
    waiting, seen = [owner], {owner.name}
    while waiting:
        for base in waiting.pop().bases:
            if code.resolve(base).endswith(_BASES):
                return True
            name = code.name(base) or ""
            if name in classes and name not in seen:
                seen.add(name)
                waiting.append(classes[name])
    return False


def _header(code: Code, owner: ast.ClassDef) -> Span:
    """Return the place of a class's first line, without its body."""
    span = code.span(owner)
    return Span(span.cell, span.line, span.column, span.line, span.column + len(f"class {owner.name}"))


def _calls_base(method: Function) -> bool:
    """Return True if a method calls the `__init__` of its base class in any form."""
    return any(isinstance(node, ast.Attribute) and node.attr == "__init__" for node in ast.walk(method))


def _options(method: Function) -> str:
    """Return `**kwargs` where the constructor takes them and does nothing else with them."""
    keywords = method.args.kwarg
    if keywords is None:
        return ""
    is_used = any(isinstance(node, ast.Name) and node.id == keywords.arg for node in ast.walk(method))
    return "" if is_used else f"**{keywords.arg}"


def _edits(document: Document, owner: ast.ClassDef, method: Function, call: str) -> tuple[Edit, ...]:
    """Return the edit that inserts the call in front of the first statement; behind the docstring.

    A base class between the two may need arguments: there is no edit then.
    """
    code, body = document.code, method.body
    if len(owner.bases) != 1 or not code.resolve(owner.bases[0]).endswith(_BASES):
        return ()
    has_docstring = isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant) and len(body) > 1
    first = body[1] if has_docstring else body[0]
    if first.lineno == method.lineno:
        return (code.insert_before(first, f"{call}; "),)
    span = code.span(first)
    # Tabs, and the quote marks of a fence, as in the line itself.
    indentation = split_lines(document.sources[span.cell])[span.line - 1][: span.column]
    return (code.insert_before(first, f"{call}\n{indentation}"),)


KERAS_SEQUENCE_INIT = Rule(
    "keras-sequence-init",
    RuleFamily.KERAS,
    "A Keras Sequence or PyDataset doesn't initialize its base class",
    _check,
    triggers=("Sequence", "PyDataset"),
    is_fixable=True,
)
